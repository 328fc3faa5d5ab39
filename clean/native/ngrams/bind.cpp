// Bindings of n-grams: conversion, GIL release and docstrings only.
#include <mutex>

#include "arrays.hpp"
#include "fold_table.hpp"
#include "ngrams/features.hpp"
#include "ngrams/ngrams.hpp"

namespace nb = nanobind;
namespace ng = webtext::ngrams;
using namespace nb::literals;
using namespace webtext::bind;

namespace {

Out<int64_t> add(ng::Table& table, nb::bytes text) {
  std::vector<int64_t> numbers;
  const std::string_view view(text.c_str(), text.size());
  {
    nb::gil_scoped_release release;
    const std::lock_guard alone(table.mutex);
    table.add(view, numbers);
  }
  return give(std::move(numbers));
}

nb::tuple find(const ng::Table& table, const In<uint8_t>& bytes, const In<int64_t>& offsets) {
  const Texts texts = texts_of(bytes, offsets);
  std::vector<int64_t> numbers, ends{0};
  {
    nb::gil_scoped_release release;
    const std::shared_lock together(table.mutex);
    ng::Finder finder(table);
    for (size_t i = 0; i < texts.size(); ++i) {
      finder.find(texts[i], numbers);
      ends.push_back(static_cast<int64_t>(numbers.size()));
    }
  }
  return nb::make_tuple(give(std::move(numbers)), give(std::move(ends)));
}

nb::tuple features(const In<uint8_t>& bytes, const In<int64_t>& offsets, unsigned bits) {
  if (bits < 1 || bits > 24) throw std::invalid_argument("bits must be between 1 and 24");
  const Texts texts = texts_of(bytes, offsets);
  std::vector<uint32_t> found;
  std::vector<int64_t> ends{0};
  {
    nb::gil_scoped_release release;
    webtext::score::Features of(bits);
    for (size_t i = 0; i < texts.size(); ++i) {
      of.append(texts[i], found);
      ends.push_back(static_cast<int64_t>(found.size()));
    }
  }
  return nb::make_tuple(give(std::move(found)), give(std::move(ends)));
}

}  // namespace

NB_MODULE(_ngrams, m) {
  m.doc() =
      "The C++ core of webtext.clean.decontaminate and webtext.clean.score; the readable twins are "
      "tests/reference/ngrams.py and tests/reference/features.py.";
  m.attr("UNICODE_VERSION") = webtext::kTableUnicodeVersion;
  nb::class_<ng::Table>(m, "Table", "Distinct n-grams of the words of texts, numbered in order of first occurrence.")
      .def(nb::init<size_t>(), "n"_a)
      .def("add", &add, "text"_a,
           "Add the n-grams of UTF-8 text; return their numbers (int64) in text order, repeats included.")
      .def("find", &find, "bytes"_a, "offsets"_a,
           "Find the n-grams of the texts bytes[offsets[i]:offsets[i + 1]] that are in the table, word for word.\n\n"
           "Returns (numbers int64, ends int64 [n + 1]): text i has numbers[ends[i]:ends[i + 1]], in text order,\n"
           "repeats included.")
      .def("__len__", &ng::Table::size);
  m.def("features", &features, "bytes"_a, "offsets"_a, "bits"_a,
        "Return the features below 2^bits of the texts bytes[offsets[i]:offsets[i + 1]], without repeats.\n\n"
        "Returns (features uint32, ends int64 [n + 1]): text i has features[ends[i]:ends[i + 1]].");
}
