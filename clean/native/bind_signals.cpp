// Bindings of the quality rules' values: conversion, GIL release and docstrings only.
#include "arrays.hpp"
#include "character_table.hpp"
#include "signals.hpp"

namespace nb = nanobind;
namespace sg = webtext::signals;
using namespace nb::literals;
using namespace webtext::bind;

namespace {

constexpr int64_t kLongestText = int64_t{1} << 31;

void check_lengths(std::span<const int64_t> offsets) {
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] - offsets[i - 1] >= kLongestText) throw std::invalid_argument("a text is as long as 2 GiB");
  }
}

nb::dict measure(const In<uint8_t>& bytes, const In<int64_t>& offsets) {
  const std::span<const int64_t> ends = span(offsets);
  check_offsets(ends, bytes.shape(0));
  check_lengths(ends);
  const size_t n_texts = ends.size() - 1;
  std::vector<std::vector<int64_t>> counts(sg::kCounts, std::vector<int64_t>(n_texts));
  std::vector<std::vector<double>> ratios(sg::kRatios, std::vector<double>(n_texts));
  {
    nb::gil_scoped_release release;
    sg::Measurer measurer;
    for (size_t i = 0; i < n_texts; ++i) {
      const auto* text = reinterpret_cast<const char*>(bytes.data()) + ends[i];
      const sg::Values values = measurer.measure({text, static_cast<size_t>(ends[i + 1] - ends[i])});
      for (size_t column = 0; column < sg::kCounts; ++column) counts[column][i] = values.counts[column];
      for (size_t column = 0; column < sg::kRatios; ++column) ratios[column][i] = values.ratios[column];
    }
  }
  nb::dict columns;
  for (size_t i = 0; i < sg::kCounts; ++i) columns[sg::kCountNames[i]] = give(std::move(counts[i]));
  for (size_t i = 0; i < sg::kRatios; ++i) columns[sg::kRatioNames[i]] = give(std::move(ratios[i]));
  return columns;
}

}  // namespace

NB_MODULE(_signals, m) {
  m.doc() = "The C++ core of webtext.clean.rules; its readable twin is clean/rules/signals.py.";
  m.attr("UNICODE_VERSION") = sg::kUnicodeVersion;
  m.def(
      "measure", &measure, "bytes"_a, "offsets"_a,
      "Return every rule's value for the UTF-8 texts bytes[offsets[i]:offsets[i + 1]]: name -> int64 or float64 [n].");
}
