// Shared by the bindings of clean: numpy arrays in and out, and the offsets that split bytes into texts.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace webtext::bind {

namespace nb = nanobind;

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using InRows = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
template <typename T>
using OutRows = nb::ndarray<nb::numpy, T, nb::ndim<2>>;

template <typename T>
std::span<const T> span(const In<T>& array) {
  return {array.data(), array.shape(0)};
}
template <typename T>
std::span<const T> span(const InRows<T>& array) {
  return {array.data(), array.shape(0) * array.shape(1)};
}

// A capsule that owns the vector's memory for numpy.
template <typename T>
nb::capsule keep(std::unique_ptr<std::vector<T>> owned) {
  return nb::capsule(owned.release(), [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
}

// Hands a vector to numpy without a copy.
template <typename T>
Out<T> give(std::vector<T> values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const size_t size = owned->size();
  return Out<T>(data, {size}, keep(std::move(owned)));
}

template <typename T>
OutRows<T> give_rows(std::vector<T> values, size_t columns) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const size_t rows = owned->size() / columns;
  return OutRows<T>(data, {rows, columns}, keep(std::move(owned)));
}

// Texts in one buffer: text i is bytes[offsets[i]] up to bytes[offsets[i + 1]].
struct Texts {
  const char* bytes;
  std::span<const int64_t> offsets;

  size_t size() const { return offsets.size() - 1; }
  std::string_view operator[](size_t i) const {
    return {bytes + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i])};
  }
};

// Throws (ValueError in Python) unless the values from offsets[i] to offsets[i + 1] can be text i.
inline void check_offsets(std::span<const int64_t> offsets, size_t size) {
  if (offsets.empty() || offsets.front() < 0 || !std::ranges::is_sorted(offsets) ||
      static_cast<size_t>(offsets.back()) > size) {
    throw std::invalid_argument("offsets must rise from 0 or more to at most the number of values");
  }
}

inline Texts texts_of(const In<uint8_t>& bytes, const In<int64_t>& offsets) {
  check_offsets(span(offsets), bytes.shape(0));
  return {reinterpret_cast<const char*>(bytes.data()), span(offsets)};
}

}  // namespace webtext::bind
