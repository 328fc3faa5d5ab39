// Binding of what superwords are learned from.
#include "bind_superwords.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind_counts.hpp"
#include "superwords.hpp"
#include "texts.hpp"
#include "trainer.hpp"

namespace webtext {
namespace {

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

std::vector<TrainedMerge> learn(const SuperwordCounts& words, LockedCounts& runs, const std::vector<nb::bytes>& tokens,
                                std::size_t n_tokens, std::int64_t min_frequency,
                                std::optional<std::size_t> max_token_length) {
  Goal goal{n_tokens, min_frequency};
  if (max_token_length) goal.max_token_length = *max_token_length;
  TokenTable table;
  for (const std::string& token : strings_of(tokens)) table.add(token);
  const EncodePiece encode = [&](const Byte* bytes, std::size_t n_bytes, std::vector<std::uint32_t>& into) {
    words.encode(bytes, n_bytes, into);
  };
  const auto interrupt = [](std::size_t) {
    nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
  return runs.with([&](PieceCounts& all, const auto&) {
    all.settle();
    return train_merges(all, std::move(table), encode, goal, interrupt);
  });
}

Pairs train(const SuperwordCounts& words, LockedCounts& runs, const std::vector<nb::bytes>& tokens,
            std::size_t n_tokens, std::int64_t min_frequency, std::optional<std::size_t> max_token_length) {
  Pairs pairs;
  for (const TrainedMerge& merge : learn(words, runs, tokens, n_tokens, min_frequency, max_token_length)) {
    pairs.emplace_back(merge.left, merge.right);
  }
  return pairs;
}

std::vector<std::int64_t> counts_of_merges(const SuperwordCounts& words, LockedCounts& runs,
                                           const std::vector<nb::bytes>& tokens, std::size_t n_tokens,
                                           std::int64_t min_frequency, std::optional<std::size_t> max_token_length) {
  std::vector<std::int64_t> found;
  for (const TrainedMerge& merge : learn(words, runs, tokens, n_tokens, min_frequency, max_token_length))
    found.push_back(merge.count);
  return found;
}

}  // namespace

void bind_superwords(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<SuperwordCounts>(module, "SuperwordCounts", "Counts words in a row, each of which is one token.")
      .def(
          "__init__",
          [](SuperwordCounts* self, const std::vector<nb::bytes>& words) {
            new (self) SuperwordCounts(strings_of(words));
          },
          "words"_a, "words[token] are the bytes of a piece that the token is all of, else b''; only words take part.")
      .def(
          "count_pairs",
          [](SuperwordCounts& counts, nb::handle texts, std::int64_t weight, unsigned threads) {
            const Texts all(texts);
            nb::gil_scoped_release release;
            counts.count_pairs(all.views, weight, threads);
          },
          "texts"_a, "weight"_a, "threads"_a,
          nb::sig("def count_pairs(self, texts: Sequence[str | bytes], weight: int, threads: int) -> None"),
          "The first pass: how often two words stand in a row, each text `weight` times.")
      .def(
          "count_of_nth_pair",
          [](const SuperwordCounts& counts, std::size_t n) { return counts.pairs().count_of_nth(n); }, "n"_a,
          "The count of the n-th most frequent pair, 0 when there are fewer.")
      .def_prop_ro(
          "error", [](const SuperwordCounts& counts) { return counts.pairs().error(); },
          "What the count of a pair may have lost because there were too many to remember.")
      .def(
          "count_runs",
          [](const SuperwordCounts& counts, nb::handle texts, std::int64_t weight, unsigned threads,
             std::int64_t min_count, LockedCounts& runs) {
            const Texts all(texts);
            runs.with([&](PieceCounts& into, const auto&) {
              counts.count_runs(all.views, weight, threads, min_count, into);
              return true;
            });
          },
          "texts"_a, "weight"_a, "threads"_a, "min_count"_a, "runs"_a,
          nb::sig("def count_runs(self, texts: Sequence[str | bytes], weight: int, threads: int, min_count: int, runs: "
                  "PieceCounts) "
                  "-> None"),
          "The second pass: add the runs of words to `runs`, cut at pairs that occur less than `min_count` times.")
      .def("train", &train, "runs"_a, "tokens"_a, "n_tokens"_a, "min_frequency"_a, "max_token_length"_a.none(),
           "The merges of runs, with new tokens after `tokens`.")
      .def("merge_counts", &counts_of_merges, "runs"_a, "tokens"_a, "n_tokens"_a, "min_frequency"_a,
           "max_token_length"_a.none(), "How often the pair of each of these merges occurred when it was merged.");
}

}  // namespace webtext
