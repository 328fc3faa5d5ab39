// Views of Python texts for the C++ cores; for the bindings only.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <vector>

namespace webtext {

namespace nb = nanobind;

// The UTF-8 of a str, which lives as long as the str does, or the bytes of a bytes object.
inline std::string_view view(nb::handle text) {
  Py_ssize_t n_bytes = 0;
  if (PyUnicode_Check(text.ptr())) {
    const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &n_bytes);
    if (!bytes) throw nb::python_error();
    return {bytes, static_cast<std::size_t>(n_bytes)};
  }
  char* bytes = nullptr;
  if (PyBytes_AsStringAndSize(text.ptr(), &bytes, &n_bytes)) throw nb::python_error();
  return {bytes, static_cast<std::size_t>(n_bytes)};
}

inline std::vector<std::string_view> views_of(const std::vector<nb::bytes>& items) {
  std::vector<std::string_view> views;
  for (const nb::bytes& item : items) views.emplace_back(item.c_str(), item.size());
  return views;
}

// Views of many texts, kept alive by a tuple that no other thread can change.
struct Texts {
  explicit Texts(nb::handle sequence) : items(nb::steal<nb::tuple>(PySequence_Tuple(sequence.ptr()))) {
    if (!items.is_valid()) throw nb::python_error();
    for (nb::handle item : items) views.push_back(view(item));
  }
  nb::tuple items;
  std::vector<std::string_view> views;
};

}  // namespace webtext
