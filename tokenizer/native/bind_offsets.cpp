// Positions in a text for Python: the ends of pieces as an array, and the offsets of tokens as a list of pairs (zip()
// of two lists takes twice as long).
#include "bind_offsets.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "scanner.hpp"
#include "texts.hpp"
#include "to_array.hpp"

namespace webtext {
namespace {

namespace nb = nanobind;
using Places = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::object to_int(std::int64_t place) {
  auto number = nb::steal(PyLong_FromLongLong(place));
  if (!number.is_valid()) throw nb::python_error();
  return number;
}

// Most tokens start where the previous one ends; both then share one int.
nb::list offset_pairs(const Places& starts, const Places& ends) {
  if (starts.size() != ends.size()) throw std::invalid_argument("as many starts as ends are needed");
  auto list = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(starts.size())));
  if (!list.is_valid()) throw nb::python_error();
  std::int64_t last = 0;
  nb::object last_int = to_int(last);
  for (std::size_t index = 0; index < starts.size(); ++index) {
    nb::object start = starts.data()[index] == last ? last_int : to_int(starts.data()[index]);
    last = ends.data()[index];
    last_int = to_int(last);
    PyObject* pair = PyTuple_New(2);
    if (!pair) throw nb::python_error();
    PyTuple_SetItem(pair, 0, start.release().ptr());
    PyTuple_SetItem(pair, 1, nb::object(last_int).release().ptr());
    PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(index), pair);
  }
  return list;
}

nb::object piece_ends(const nb::bytes& text, const std::string& pattern, const std::string& unicode_version) {
  const std::string_view bytes(text.c_str(), text.size());
  std::vector<std::int64_t> ends;
  std::int64_t end = 0;
  Scanner(pattern, unicode_version).each_piece(begin_of(bytes), end_of(bytes), [&](const Byte*, std::size_t n_bytes) {
    ends.push_back(end += static_cast<std::int64_t>(n_bytes));
  });
  return to_array(std::move(ends));
}

}  // namespace

void bind_offsets(nb::module_& module) {
  using namespace nb::literals;
  module.def("offset_pairs", &offset_pairs, "starts"_a, "ends"_a,
             nb::sig("def offset_pairs(starts: numpy.typing.NDArray[numpy.int64], ends: "
                     "numpy.typing.NDArray[numpy.int64]) -> list[tuple[int, int]]"),
             "Return the pairs (starts[i], ends[i]).");
  module.def("piece_ends", &piece_ends, "text"_a, "pattern"_a = "gpt2", "unicode_version"_a = kUnicodeVersion,
             nb::sig("def piece_ends(text: bytes, pattern: str = 'gpt2', unicode_version: str = UNICODE_VERSION) -> "
                     "numpy.typing.NDArray[numpy.int64]"),
             "Return the byte offset of the end of each piece, cut by a named pattern.");
}

}  // namespace webtext
