// Bindings of the sift for dumps: conversion, GIL release and docstrings only.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "sift.hpp"

namespace nb = nanobind;
namespace sf = webtext::sift;
using namespace nb::literals;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::tuple sift(const sf::Rule& rule, const Bytes& lines, bool portable) {
  sf::Sifted sifted;
  {
    nb::gil_scoped_release release;
    sifted = sf::sift({reinterpret_cast<const char*>(lines.data()), lines.shape(0)}, rule, portable);
  }
  nb::dict dropped;
  for (size_t reason = 0; reason < sf::kReasons; ++reason) {
    if (sifted.dropped[reason] > 0) dropped[sf::kReasonNames[reason]] = sifted.dropped[reason];
  }
  nb::list others;
  for (const auto& [begin, end] : sifted.others) others.append(nb::make_tuple(begin, end));
  return nb::make_tuple(dropped, nb::bytes(sifted.posts.data(), sifted.posts.size()), others);
}

}  // namespace

NB_MODULE(_sift, m) {
  m.doc() = "Sift the lines of Reddit's dumps; the readable twin is tests/reference/sift.py.";
  nb::class_<sf::Rule>(m, "Rule", "The checks of a karma rule that judge a post without its URL; None for no limit.")
      .def(
          "__init__",
          [](sf::Rule* rule, std::optional<int64_t> end, std::optional<int64_t> min_karma,
             std::optional<int64_t> min_score_age, bool keep_over_18, bool keep_self_posts,
             const std::vector<std::string>& blocked_subreddits) {
            new (rule) sf::Rule{end,          min_karma,       min_score_age,
                                keep_over_18, keep_self_posts, {blocked_subreddits.begin(), blocked_subreddits.end()}};
          },
          nb::kw_only(), "end"_a.none(), "min_karma"_a.none(), "min_score_age"_a.none(), "keep_over_18"_a,
          "keep_self_posts"_a, "blocked_subreddits"_a);
  m.def(
      "sift", &sift, "rule"_a, "lines"_a, "portable"_a = false,
      "Judge complete lines: return (dropped lines by reason, a JSON line per post that counts, (begin, end) of each "
      "other line).\n\n"
      "The JSON line of a post that counts contains only the fields that matter, unchanged. The other lines are those\n"
      "that are not plain rows or not valid JSON. `portable`: without SIMD instructions; the result is the same.");
}
