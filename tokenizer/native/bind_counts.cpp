// Bindings of the counts of pieces.
#include "bind_counts.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "texts.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace webtext {
namespace {

std::vector<TextShare> shares_of(const Texts& texts) {
  std::vector<TextShare> all;
  for (const std::string_view text : texts.views) all.push_back({begin_of(text), end_of(text)});
  return all;
}

// The memory of an object with the buffer protocol, locked for the lifetime of this object.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE)) throw nb::python_error();
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&buffer_); }
  TextShare share() const {
    const auto* begin = static_cast<const Byte*>(buffer_.buf);
    return {begin, begin + buffer_.len};
  }

 private:
  Py_buffer buffer_;
};

std::size_t add_block(LockedCounts& counts, nb::handle block, bool is_last, std::int64_t weight, unsigned threads) {
  const Buffer buffer(block);
  return counts.with([&](PieceCounts& all, const auto& keep_going) {
    if (!is_last) return all.add_start_of(buffer.share(), weight, threads, keep_going);
    all.add_texts({buffer.share()}, weight, threads, keep_going);
    return static_cast<std::size_t>(buffer.share().end - buffer.share().begin);
  });
}

void add_pieces(LockedCounts& counts, nb::handle pieces, const std::vector<std::int64_t>& times) {
  const Texts texts(pieces);
  if (texts.views.size() != times.size()) throw std::invalid_argument("as many counts as pieces are needed");
  counts.with([&](PieceCounts& all, const auto&) {
    for (std::size_t index = 0; index < times.size(); ++index) {
      all.add(begin_of(texts.views[index]), texts.views[index].size(), times[index]);
    }
    return true;
  });
}

nb::list items(LockedCounts& counts) {
  nb::list found;
  std::string names;
  std::vector<std::pair<std::size_t, std::int64_t>> pieces;
  counts.with([&](PieceCounts& all, const auto&) {
    all.settle();
    all.each([&](const Byte* bytes, std::size_t n_bytes, std::int64_t count) {
      names.append(reinterpret_cast<const char*>(bytes), n_bytes);
      pieces.emplace_back(n_bytes, count);
    });
    return true;
  });
  const char* at = names.data();
  for (const auto& [n_bytes, count] : pieces) {
    found.append(nb::make_tuple(nb::bytes(at, n_bytes), count));
    at += n_bytes;
  }
  return found;
}

// The pieces with the largest counts, the largest first; on ties, the smallest bytes first.
nb::list most_common(LockedCounts& counts, std::size_t n) {
  using Counted = std::pair<std::int64_t, std::string>;
  const auto before = [](const Counted& left, const Counted& right) {
    return left.first != right.first ? left.first > right.first : left.second < right.second;
  };
  std::vector<Counted> best;  // a heap with the last one on top
  counts.with([&](PieceCounts& all, const auto&) {
    all.settle();
    all.each([&](const Byte* bytes, std::size_t n_bytes, std::int64_t count) {
      if (n == 0 || (best.size() == n && count < best.front().first)) return;
      best.emplace_back(count, std::string(reinterpret_cast<const char*>(bytes), n_bytes));
      std::push_heap(best.begin(), best.end(), before);
      if (best.size() <= n) return;
      std::pop_heap(best.begin(), best.end(), before);
      best.pop_back();
    });
    std::sort_heap(best.begin(), best.end(), before);
    return true;
  });
  nb::list pieces;
  for (const Counted& piece : best) pieces.append(nb::bytes(piece.second.data(), piece.second.size()));
  return pieces;
}

// Translates system errors to OSError with their errno.
void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::system_error& error) {
    const std::string message = error.code().message();
    PyErr_SetObject(PyExc_OSError, nb::make_tuple(error.code().value(), message.c_str()).ptr());
  }
}

}  // namespace

void bind_counts(nb::module_& m) {
  nb::register_exception_translator(translate);
  nb::exception<CountFileError>(m, "CountFileError", PyExc_ValueError);

  nb::class_<LockedCounts>(m, "PieceCounts", "Counts of distinct pieces: all that training needs of a corpus.")
      .def(nb::init<std::string, std::string, std::size_t, std::string>(), "pattern"_a = "gpt2",
           "unicode_version"_a = kUnicodeVersion, "max_memory"_a = PieceCounts::kDefaultMemory, "folder"_a = "/tmp",
           "Tables take at most `max_memory` bytes; counts above that are spilled to nameless files in `folder`.")
      .def("__len__",
           [](LockedCounts& counts) {
             return counts.with([](PieceCounts& all, const auto&) {
               all.settle();
               return all.size();
             });
           })
      .def(
          "add_texts",
          [](LockedCounts& counts, nb::handle texts, std::int64_t weight, unsigned threads) {
            const Texts all_texts(texts);
            counts.with([&](PieceCounts& all, const auto& keep_going) {
              all.add_texts(shares_of(all_texts), weight, threads, keep_going);
              return true;
            });
          },
          "texts"_a, "weight"_a = 1, "threads"_a = 1,
          nb::sig("def add_texts(self, texts: Sequence[str | bytes], weight: int = 1, threads: int = 1) -> None"),
          "Cut texts and count their pieces, `weight` times each. OverflowError if counts could exceed 63 bits.")
      .def("add_block", &add_block, "block"_a, "is_last"_a, "weight"_a = 1, "threads"_a = 1,
           nb::sig("def add_block(self, block: bytearray | memoryview, is_last: bool, weight: int = 1, "
                   "threads: int = 1) -> int"),
           "Count a block of a text, which continues unless `is_last`; return how many bytes were counted. Put the\n"
           "remaining bytes before the next block.")
      .def("add_pieces", &add_pieces, "pieces"_a, "counts"_a,
           nb::sig("def add_pieces(self, pieces: Sequence[str | bytes], counts: Sequence[int]) -> None"),
           "Add the counts of pieces that are already cut.")
      .def(
          "add_file",
          [](LockedCounts& counts, const std::string& path, std::int64_t weight) {
            const auto [pattern, version] = counts.with([&](PieceCounts& all, const auto&) {
              const auto file = OpenFile::reading(path);
              const CountReader reader(file);
              all.add_file(file, weight);
              return std::make_pair(reader.pattern(), reader.unicode_version());
            });
            return nb::make_tuple(nb::bytes(pattern.data(), pattern.size()), nb::bytes(version.data(), version.size()));
          },
          "path"_a, "weight"_a = 1, nb::sig("def add_file(self, path: str, weight: int = 1) -> tuple[bytes, bytes]"),
          "Add a file of counts, `weight` times; return its pattern and Unicode version. The file is read when the\n"
          "counts are next used, which raises CountFileError if it is damaged.")
      .def(
          "save",
          [](LockedCounts& counts, const std::string& path) {
            const CountTotals totals =
                counts.with([&](PieceCounts& all, const auto&) { return all.save(OpenFile::writing(path)); });
            return std::make_pair(totals.n_pieces, totals.n_bytes);
          },
          "path"_a, "Write a file of counts; return its number of pieces and the bytes of text that they cover.")
      .def("most_common", &most_common, "n"_a, nb::sig("def most_common(self, n: int) -> list[bytes]"),
           "Return the n pieces with the largest counts, largest first; on ties, the smallest bytes first.")
      .def("items", &items, nb::sig("def items(self) -> list[tuple[bytes, int]]"), "Return all pieces and counts.");
}

}  // namespace webtext
