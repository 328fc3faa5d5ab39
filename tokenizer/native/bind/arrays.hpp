// numpy arrays that own the memory of a result; for the bindings only.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/huge_array.hpp"

namespace webtext {

namespace nb = nanobind;

// Converts a vector to an array.
template <class Item>
nb::object to_array(std::vector<Item> items) {
  auto* owned = new std::vector<Item>(std::move(items));
  nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<Item>*>(memory); });
  return nb::cast(nb::ndarray<nb::numpy, Item, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

// Memory for a number of tokens that isn't known yet: room for the maximum, of which only written pages cost anything,
// and then an array of the actual size.
template <class Token>
class Room {
 public:
  explicit Room(std::size_t n) : tokens_(static_cast<Token*>(std::malloc(n * sizeof(Token)))) {
    if (!tokens_) throw std::bad_alloc();
    on_huge_pages(tokens_, n * sizeof(Token));
  }
  ~Room() { std::free(tokens_); }
  Room(const Room&) = delete;

  Token* get() const { return tokens_; }

  // Returns the first n tokens as an array, and gives up the memory. A small array is copied, because numpy creates one
  // faster than it wraps existing memory.
  nb::object to_array(std::size_t n) {
    if (n * sizeof(Token) <= kCopied) return copied(n);
    Token* kept = static_cast<Token*>(std::realloc(tokens_, n ? n * sizeof(Token) : 1));
    if (kept) tokens_ = kept;  // else it keeps its size
    nb::capsule owner(tokens_, [](void* memory) noexcept { std::free(memory); });
    return nb::cast(nb::ndarray<nb::numpy, Token, nb::ndim<1>>(std::exchange(tokens_, nullptr), {n}, owner));
  }

 private:
  static constexpr std::size_t kCopied = 1 << 16;  // bytes

  nb::object copied(std::size_t n) const {
    // numpy.empty and the dtype; never freed. Set under the GIL instead of by a constructor, for whose end other
    // threads would wait with the GIL that the import needs.
    static PyObject *empty, *dtype;
    if (!dtype) {
      const nb::module_ numpy = nb::module_::import_("numpy");
      empty = nb::object(numpy.attr("empty")).release().ptr();
      dtype = numpy.attr("dtype")(sizeof(Token) == 2 ? "uint16" : "uint32").release().ptr();
    }
    nb::object array = nb::handle(empty)(n, nb::handle(dtype));
    Py_buffer buffer;
    if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_WRITABLE)) throw nb::python_error();
    std::memcpy(buffer.buf, tokens_, n * sizeof(Token));
    PyBuffer_Release(&buffer);
    return array;
  }

  Token* tokens_;
};

}  // namespace webtext
