// Converts a vector to a numpy array that owns it; for the bindings only.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

namespace webtext {

namespace nb = nanobind;

template <class Item>
nb::object to_array(std::vector<Item> items) {
  auto* owned = new std::vector<Item>(std::move(items));
  nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<Item>*>(memory); });
  return nb::cast(nb::ndarray<nb::numpy, Item, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

}  // namespace webtext
