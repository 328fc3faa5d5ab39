// Bindings of the n-gram table: conversion, GIL release and docstrings only.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "fold_table.hpp"
#include "ngrams.hpp"

namespace nb = nanobind;
namespace ng = webtext::ngrams;
using namespace nb::literals;

namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;

// Hands a vector to numpy without a copy.
Out give(std::vector<int64_t> values) {
  auto owned = std::make_unique<std::vector<int64_t>>(std::move(values));
  int64_t* data = owned->data();
  const size_t size = owned->size();
  nb::capsule owner(owned.release(),
                    [](void* pointer) noexcept { delete static_cast<std::vector<int64_t>*>(pointer); });
  return Out(data, {size}, owner);
}

Out add(ng::Table& table, nb::bytes text) {
  std::vector<int64_t> numbers;
  const std::string_view view(text.c_str(), text.size());
  {
    nb::gil_scoped_release release;
    table.add(view, numbers);
  }
  return give(std::move(numbers));
}

nb::tuple find(const ng::Table& table, const In<uint8_t>& bytes, const In<int64_t>& offsets) {
  const int64_t* begin = offsets.data();
  const size_t size = offsets.shape(0);
  if (size == 0 || begin[0] < 0 || !std::is_sorted(begin, begin + size) ||
      static_cast<size_t>(begin[size - 1]) > bytes.shape(0)) {
    throw std::invalid_argument("offsets must rise from 0 or more to at most the number of values");
  }
  const webtext::minhash::Texts texts{reinterpret_cast<const char*>(bytes.data()), {begin, size}};
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

}  // namespace

NB_MODULE(_ngrams, m) {
  m.doc() = "The C++ core of webtext.clean.decontaminate; its readable twin is clean/decontaminate/reference.py.";
  m.attr("UNICODE_VERSION") = webtext::minhash::kUnicodeVersion;
  nb::class_<ng::Table>(m, "Table",
                        "Distinct n-grams of the words of texts, numbered in the order in which they first came.")
      .def(nb::init<size_t>(), "n"_a)
      .def("add", &add, "text"_a,
           "Add the n-grams of UTF-8 text; int64 numbers of them in text order, repeats included.")
      .def("find", &find, "bytes"_a, "offsets"_a,
           "The n-grams of the texts bytes[offsets[i]:offsets[i + 1]] that are in the table, word for word.\n\n"
           "Returns (numbers int64, ends int64 [n + 1]): those of text i are numbers[ends[i]:ends[i + 1]], in text\n"
           "order, repeats included.")
      .def("__len__", &ng::Table::size)
      .def_prop_ro("n", &ng::Table::n, "Words of an n-gram.")
      .def_prop_ro("n_bytes", &ng::Table::n_bytes, "Memory that the table takes.");
}
