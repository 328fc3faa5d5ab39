// Memory for tokens whose number is not known yet: room for the most there can be, of which only what is written costs
// anything; then a numpy array of what was needed. For the bindings only.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "huge_pages.hpp"

namespace webtext {

namespace nb = nanobind;

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

  // The first n tokens; leaves nothing behind. A few are copied: numpy makes a small array faster than it takes one
  // over.
  nb::object to_array(std::size_t n) {
    if (n * sizeof(Token) <= kCopied) return copied(n);
    Token* kept = static_cast<Token*>(std::realloc(tokens_, n ? n * sizeof(Token) : 1));
    if (kept) tokens_ = kept;  // else it stays as long as it was
    nb::capsule owner(tokens_, [](void* memory) noexcept { std::free(memory); });
    return nb::cast(nb::ndarray<nb::numpy, Token, nb::ndim<1>>(std::exchange(tokens_, nullptr), {n}, owner));
  }

 private:
  static constexpr std::size_t kCopied = 1 << 16;  // bytes

  nb::object copied(std::size_t n) const {
    static const Empty empty;  // numpy.empty and the dtype live as long as the process
    nb::object array = empty.function(n, empty.dtype);
    Py_buffer buffer;
    if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_WRITABLE)) throw nb::python_error();
    std::memcpy(buffer.buf, tokens_, n * sizeof(Token));
    PyBuffer_Release(&buffer);
    return array;
  }

  struct Empty {
    nb::object function, dtype;
    Empty() {
      const nb::module_ numpy = nb::module_::import_("numpy");
      function = numpy.attr("empty");
      dtype = numpy.attr("dtype")(sizeof(Token) == 2 ? "uint16" : "uint32");
      function.inc_ref();
      dtype.inc_ref();
    }
  };

  Token* tokens_;
};

}  // namespace webtext
