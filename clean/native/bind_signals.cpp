// Bindings of the quality rules' values: conversion, GIL release and docstrings only.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "character_table.hpp"
#include "signals.hpp"

namespace nb = nanobind;
namespace sg = webtext::signals;
using namespace nb::literals;

namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

constexpr int64_t kLongestText = int64_t{1} << 31;

// Hands a vector to numpy without a copy.
template <typename T>
Out<T> give(std::vector<T> values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const size_t size = owned->size();
  nb::capsule owner(owned.release(), [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
  return Out<T>(data, {size}, owner);
}

void check_offsets(std::span<const int64_t> offsets, size_t size) {
  bool rise = !offsets.empty() && offsets.front() >= 0 && static_cast<size_t>(offsets.back()) <= size;
  for (size_t i = 1; rise && i < offsets.size(); ++i) {
    rise = offsets[i - 1] <= offsets[i] && offsets[i] - offsets[i - 1] < kLongestText;
  }
  if (!rise) throw std::invalid_argument("offsets must rise from 0 or more to at most the number of bytes, by < 2 GiB");
}

nb::dict measure(const In<uint8_t>& bytes, const In<int64_t>& offsets) {
  const std::span<const int64_t> ends(offsets.data(), offsets.shape(0));
  check_offsets(ends, bytes.shape(0));
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
      "Every rule's value for the UTF-8 texts bytes[offsets[i]:offsets[i + 1]]: column name -> int64 or float64 [n].");
}
