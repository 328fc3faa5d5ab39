// Bindings of n-grams: conversion, GIL release and docstrings only.
#include "arrays.hpp"
#include "fold_table.hpp"
#include "ngrams/bloom.hpp"
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
    table.add(view, numbers);
  }
  return give(std::move(numbers));
}

nb::tuple find(const ng::Table& table, const In<uint8_t>& bytes, const In<int64_t>& offsets) {
  const Texts texts = texts_of(bytes, offsets);
  std::vector<int64_t> numbers, ends{0};
  {
    nb::gil_scoped_release release;
    ng::Finder finder(table);
    for (size_t i = 0; i < texts.size(); ++i) {
      finder.find(texts[i], numbers);
      ends.push_back(static_cast<int64_t>(numbers.size()));
    }
  }
  return nb::make_tuple(give(std::move(numbers)), give(std::move(ends)));
}

Out<uint64_t> hashes(const In<uint8_t>& bytes, const In<int64_t>& offsets, size_t n) {
  const Texts texts = texts_of(bytes, offsets);
  std::vector<uint64_t> found;
  {
    nb::gil_scoped_release release;
    webtext::minhash::Ngrams ngrams(n);
    const auto add = [&](uint64_t hash, std::string_view) { found.push_back(hash); };
    for (size_t i = 0; i < texts.size(); ++i) ngrams.each(texts[i], add);
  }
  return give(std::move(found));
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

using Bits = nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void check_bits(size_t size) {
  if (size == 0) throw std::invalid_argument("a filter has at least 64 bits");
}

void bloom_add(const Bits& bits, const In<uint64_t>& of, uint32_t probes, uint64_t first, uint64_t n_words) {
  check_bits(bits.shape(0));
  nb::gil_scoped_release release;
  webtext::bloom::add({bits.data(), bits.shape(0)}, first, 64 * (n_words ? n_words : bits.shape(0)), span(of), probes);
}

Out<uint8_t> bloom_has(const In<uint64_t>& bits, const In<uint64_t>& of, uint32_t probes) {
  check_bits(bits.shape(0));
  std::vector<uint8_t> answers(of.shape(0));
  {
    nb::gil_scoped_release release;
    webtext::bloom::has(span(bits), span(of), probes, answers);
  }
  return give(std::move(answers));
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
      .def(
          "hashes", [](const ng::Table& table) { return give(table.hashes()); },
          "Return the 64-bit hash of each n-gram, by number; equal to those of the function `hashes`.")
      .def("__len__", &ng::Table::size)
      .def_prop_ro("n", &ng::Table::n, "Words per n-gram.")
      .def_prop_ro("n_bytes", &ng::Table::n_bytes, "Memory used by the table, in bytes.");
  m.def("hashes", &hashes, "bytes"_a, "offsets"_a, "n"_a,
        "Return the 64-bit hash of each n-gram of the texts bytes[offsets[i]:offsets[i + 1]], in order, repeats "
        "included.");
  m.def("features", &features, "bytes"_a, "offsets"_a, "bits"_a,
        "Return the features below 2^bits of the texts bytes[offsets[i]:offsets[i + 1]], without repeats.\n\n"
        "Returns (features uint32, ends int64 [n + 1]): text i has features[ends[i]:ends[i + 1]].");
  m.def("bloom_add", &bloom_add, "bits"_a, "hashes"_a, "probes"_a, "first"_a = 0, "n_words"_a = 0,
        "Set the bits of each hash in a filter, or in its words from `first` on, if it has `n_words` words.");
  m.def("bloom_has", &bloom_has, "bits"_a, "hashes"_a, "probes"_a,
        "Return whether a filter has all bits of each hash: uint8 [n], 1 or 0.");
}
