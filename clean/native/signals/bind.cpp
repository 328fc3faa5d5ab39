// Bindings of the quality rules' values: conversion, GIL release and docstrings only.
#include "arrays.hpp"
#include "character_table.hpp"
#include "signals/signals.hpp"

namespace nb = nanobind;
namespace sg = webtext::signals;
using namespace nb::literals;
using namespace webtext::bind;

namespace {

constexpr size_t kLongestText = size_t{1} << 31;

nb::dict measure(const In<uint8_t>& bytes, const In<int64_t>& offsets) {
  const Texts texts = texts_of(bytes, offsets);
  const size_t n_texts = texts.size();
  for (size_t i = 0; i < n_texts; ++i) {
    if (texts[i].size() >= kLongestText) throw std::invalid_argument("a text is as long as 2 GiB");
  }
  std::vector<std::vector<int64_t>> counts(sg::kCounts, std::vector<int64_t>(n_texts));
  std::vector<std::vector<double>> ratios(sg::kRatios, std::vector<double>(n_texts));
  {
    nb::gil_scoped_release release;
    sg::Measurer measurer;
    for (size_t i = 0; i < n_texts; ++i) {
      const sg::Values values = measurer.measure(texts[i]);
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
  m.doc() = "The C++ core of webtext.clean.rules; its readable twin is tests/reference/signals.py.";
  m.attr("UNICODE_VERSION") = webtext::kTableUnicodeVersion;
  m.def(
      "measure", &measure, "bytes"_a, "offsets"_a,
      "Return every rule's value for the UTF-8 texts bytes[offsets[i]:offsets[i + 1]]: name -> int64 or float64 [n].");
}
