// Bindings of the byte-level BPE core: conversion, GIL release and docstrings only.
#include "encode/bpe.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bind/arrays.hpp"
#include "bind/arrow.hpp"
#include "bind/texts.hpp"
#include "encode/rank_file.hpp"
#include "scan/safe_cut.hpp"

#define TEXT "str | bytes"
#define ARRAY(TYPE) "numpy.typing.NDArray[" TYPE "]"
#define TOKENS ARRAY("numpy.uint16") " | " ARRAY("numpy.uint32")
#define SLICES "data: " ARRAY("numpy.uint8") ", offsets: " ARRAY("numpy.int64")

namespace nb = nanobind;
using namespace nb::literals;
using namespace webtext;

namespace {

template <class Item>
using Array = nb::ndarray<Item, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offsets = std::vector<std::int64_t>;
using Views = std::vector<std::string_view>;

// Ids as Python ints

// The Python ints of ids. Each is created once and shared by all lists. They are created in order, so those of frequent
// tokens are close together in memory, and prefetched, because counting a reference writes to them.
class Ints {
 public:
  nb::list to_list(const std::uint32_t* tokens, std::size_t n_tokens) {
    nb::list list = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(n_tokens)));
    if (!list.is_valid()) throw nb::python_error();
    for (std::size_t index = 0; index < n_tokens; ++index) {
      if (index + kAhead < n_tokens && tokens[index + kAhead] < ints_.size()) {
        __builtin_prefetch(ints_[tokens[index + kAhead]], 1);
      }
      PyObject* number = get(tokens[index]);
#ifdef Py_LIMITED_API
      PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(index), number);
#else
      PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(index), number);
#endif
    }
    return list;
  }

 private:
  static constexpr std::size_t kShared = 1 << 18, kAhead = 12;

  PyObject* get(std::uint32_t id) {
    if (id >= kShared) return nb::int_(id).release().ptr();
    while (id >= ints_.size()) ints_.push_back(nb::int_(ints_.size()).release().ptr());
    Py_INCREF(ints_[id]);
    return ints_[id];
  }

  std::vector<PyObject*> ints_;
};

nb::list to_list(const std::uint32_t* tokens, std::size_t n_tokens) {
  static Ints ints;
  return ints.to_list(tokens, n_tokens);
}

// Encoding

// Runs `work`, without the GIL if there are enough bytes for releasing it to pay off.
template <class Work>
void without_gil(std::size_t n_bytes, const Work& work) {
  constexpr std::size_t kShort = 512;
  if (n_bytes <= kShort) return work();
  nb::gil_scoped_release release;
  work();
}

// Calls use(room, n_tokens) with the tokens of a text.
template <class Token, class Use>
auto with_tokens(const Bpe& bpe, nb::handle text, const Use& use) {
  const std::string_view bytes = view(text);
  Room<Token> room(bytes.size() + Bpe::kSlack);
  std::size_t n_tokens = 0;
  without_gil(bytes.size(), [&] { n_tokens = bpe.encode(bytes, room.get()); });
  return use(room, n_tokens);
}

nb::list encode(const Bpe& bpe, nb::handle text) {
  return with_tokens<std::uint32_t>(bpe, text, [](const auto& room, std::size_t n) { return to_list(room.get(), n); });
}

nb::object encode_array(const Bpe& bpe, nb::handle text, bool wide) {
  const auto to_array = [](auto& room, std::size_t n) { return room.to_array(n); };
  return wide ? with_tokens<std::uint32_t>(bpe, text, to_array) : with_tokens<std::uint16_t>(bpe, text, to_array);
}

std::size_t count(const Bpe& bpe, nb::handle text) {
  return with_tokens<std::uint32_t>(bpe, text, [](const auto&, std::size_t n) { return n; });
}

nb::list encode_pieces(const Bpe& bpe, nb::handle text, const Offsets& ends) {
  const std::string_view bytes = view(text);
  const bool fits = ends.empty() || (ends[0] > 0 && static_cast<std::size_t>(ends.back()) <= bytes.size());
  if (!fits || std::adjacent_find(ends.begin(), ends.end(), std::greater_equal<>()) != ends.end()) {
    throw std::invalid_argument("piece ends must rise within the text");
  }
  const Room<std::uint32_t> room(bytes.size() + Bpe::kSlack);
  std::size_t n_tokens = 0;
  without_gil(bytes.size(), [&] { n_tokens = bpe.encode_pieces(bytes, ends.data(), ends.size(), room.get()); });
  return to_list(room.get(), n_tokens);
}

std::size_t n_most_of(const Views& texts) {
  std::size_t n_tokens = Bpe::kSlack;
  for (const std::string_view text : texts) n_tokens += text.size();
  return n_tokens;
}

// Encodes texts without the GIL and returns their offsets in `out`.
template <class Token>
Offsets encode_texts(const Bpe& bpe, const Views& texts, unsigned n_threads, Token* out, bool may_change) {
  Offsets offsets(texts.size() + 1);
  nb::gil_scoped_release release;
  bpe.encode_many(texts, n_threads, out, offsets.data(), may_change);
  return offsets;
}

template <class Token>
nb::tuple encode_to_arrays(const Bpe& bpe, const Views& texts, unsigned n_threads, bool may_change) {
  Room<Token> room(n_most_of(texts));
  Offsets offsets = encode_texts(bpe, texts, n_threads, room.get(), may_change);
  const auto n_tokens = static_cast<std::size_t>(offsets.back());
  return nb::make_tuple(room.to_array(n_tokens), to_array(std::move(offsets)));
}

nb::tuple encode_to_arrays(const Bpe& bpe, const Views& texts, bool wide, unsigned n_threads, bool may_change) {
  return wide ? encode_to_arrays<std::uint32_t>(bpe, texts, n_threads, may_change)
              : encode_to_arrays<std::uint16_t>(bpe, texts, n_threads, may_change);
}

nb::list encode_lists(const Bpe& bpe, nb::handle texts, unsigned n_threads) {
  const Texts all(texts);
  const Room<std::uint32_t> room(n_most_of(all.views));
  const Offsets offsets = encode_texts(bpe, all.views, n_threads, room.get(), false);
  nb::list lists;
  for (std::size_t text = 0; text < all.views.size(); ++text) {
    lists.append(to_list(room.get() + offsets[text], static_cast<std::size_t>(offsets[text + 1] - offsets[text])));
  }
  return lists;
}

Views slices(const Array<const Byte>& data, const Array<const std::int64_t>& offsets) {
  Views texts;
  for (std::size_t index = 1; index < offsets.size(); ++index) {
    const std::int64_t first = offsets(index - 1), last = offsets(index);
    if (first < 0 || last < first || static_cast<std::size_t>(last) > data.size()) {
      throw std::invalid_argument("offsets must rise from 0 to at most " + std::to_string(data.size()) + ": offset " +
                                  std::to_string(index) + " is " + std::to_string(last));
    }
    texts.push_back(view_of(data.data() + first, static_cast<std::size_t>(last - first)));
  }
  return texts;
}

// Encodes into `out`: directly if it has room for the most tokens possible. If the tokens don't fit, writes nothing.
template <class Token>
nb::object encode_into(const Bpe& bpe, const Views& texts, const Array<Token>& out, unsigned n_threads) {
  const std::size_t n_most = n_most_of(texts);
  if (out.size() >= n_most) return to_array(encode_texts(bpe, texts, n_threads, out.data(), true));
  const Room<Token> room(n_most);
  Offsets offsets = encode_texts(bpe, texts, n_threads, room.get(), true);
  if (static_cast<std::size_t>(offsets.back()) <= out.size()) std::copy_n(room.get(), offsets.back(), out.data());
  return to_array(std::move(offsets));
}

nb::object encode_into_any(const Bpe& bpe, const Array<const Byte>& data, const Array<const std::int64_t>& offsets,
                           nb::handle out, unsigned n_threads) {
  const Views texts = slices(data, offsets);
  if (Array<std::uint16_t> narrow; nb::try_cast(out, narrow, false) && bpe.is_narrow()) {
    return encode_into(bpe, texts, narrow, n_threads);
  }
  if (Array<std::uint32_t> wide; nb::try_cast(out, wide, false)) return encode_into(bpe, texts, wide, n_threads);
  throw nb::type_error("out must be a uint16 or uint32 array that holds every id");
}

// Decoding

template <class Id>
nb::bytes decode_ids(const Bpe& bpe, const Id* ids, std::size_t n_ids) {
  const std::size_t n_bytes = bpe.decoded_size(ids, n_ids);
  const auto bytes = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n_bytes)));
  if (!bytes.is_valid()) throw nb::python_error();
  char* out = PyBytes_AsString(bytes.ptr());
  nb::gil_scoped_release release;
  bpe.decode(ids, n_ids, out, n_bytes);
  return bytes;
}

nb::bytes decode_sequence(const Bpe& bpe, nb::handle sequence) {
  const auto items = nb::steal<nb::tuple>(PySequence_Tuple(sequence.ptr()));
  if (!items.is_valid()) throw nb::python_error();
  std::vector<std::int64_t> ids;
  ids.reserve(items.size());
  for (nb::handle item : items) {
    if (PyBool_Check(item.ptr())) throw nb::type_error("a bool is not an id");
    const auto number = nb::steal(PyNumber_Index(item.ptr()));
    if (!number.is_valid()) throw nb::python_error();
    int overflow = 0;
    ids.push_back(PyLong_AsLongLongAndOverflow(number.ptr(), &overflow));  // -1, an unknown id, if it doesn't fit
  }
  return decode_ids(bpe, ids.data(), ids.size());
}

nb::bytes decode(const Bpe& bpe, nb::handle ids) {
  const auto decode_array = [&](const auto& array) { return decode_ids(bpe, array.data(), array.size()); };
  if (Array<const std::uint16_t> array; nb::try_cast(ids, array, false)) return decode_array(array);
  if (Array<const std::uint32_t> array; nb::try_cast(ids, array, false)) return decode_array(array);
  if (Array<const std::int64_t> array; nb::try_cast(ids, array, false)) return decode_array(array);
  return decode_sequence(bpe, ids);
}

// Positions in a text

nb::object to_int(std::int64_t place) {
  auto number = nb::steal(PyLong_FromLongLong(place));
  if (!number.is_valid()) throw nb::python_error();
  return number;
}

// Returns the pairs as a list: zip() of two lists takes twice as long. Most tokens start where the previous one ends;
// both then share one int.
nb::list offset_pairs(const Array<const std::int64_t>& starts, const Array<const std::int64_t>& ends) {
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

std::string name_of(SimdLevel level) { return std::string(kSimdNames[static_cast<std::size_t>(level)]); }

SimdLevel simd_of(const std::string& name) {
  for (const SimdLevel level : simd_levels()) {
    if (name_of(level) == name) return level;
  }
  throw std::invalid_argument("no instruction set " + name + " here; expected one of SIMD_LEVELS");
}

nb::object piece_ends(const nb::bytes& text, const std::string& pattern, const std::string& unicode_version,
                      const std::optional<std::string>& simd) {
  const Scanner scanner(pattern, unicode_version, simd ? simd_of(*simd) : simd_level());
  Offsets ends;
  scanner.each_piece({text.c_str(), text.size()}, [&](std::string_view piece) {
    ends.push_back(static_cast<std::int64_t>(piece.size()) + (ends.empty() ? 0 : ends.back()));
  });
  return to_array(std::move(ends));
}

std::ptrdiff_t last_cut(const nb::bytearray& data, std::size_t begin, std::size_t at, std::size_t end,
                        const std::string& unicode_version) {
  if (begin > at || at > end || end > data.size()) throw std::invalid_argument("places must rise in the data");
  const auto* bytes = reinterpret_cast<const Byte*>(data.c_str());
  return last_safe_cut(ClassTable::of(unicode_version), bytes + begin, bytes + at, bytes + end) - bytes;
}

// Vocabularies and characters

Bpe* make_bpe(const std::vector<nb::bytes>& tokens, const std::optional<std::vector<Merge>>& merges, bool whole_pieces,
              const std::vector<std::pair<std::uint32_t, nb::bytes>>& special_tokens, const std::string& pattern,
              const std::string& unicode_version) {
  std::vector<std::pair<std::uint32_t, std::string>> specials;
  for (const auto& [id, token] : special_tokens) specials.emplace_back(id, std::string(token.c_str(), token.size()));
  return new Bpe(Scanner(pattern, unicode_version), views_of(tokens), merges, whole_pieces, specials);
}

nb::tuple read_ranks(const nb::bytes& file, std::uint32_t n_most) {
  const RankFile read({file.c_str(), file.size()}, n_most);
  auto tokens = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(read.size())));
  if (!tokens.is_valid()) throw nb::python_error();
  for (std::size_t rank = 0; rank < read.size(); ++rank) {
    PyObject* token = PyBytes_FromStringAndSize(read[rank].data(), static_cast<Py_ssize_t>(read[rank].size()));
    if (!token) throw nb::python_error();
    PyList_SetItem(tokens.ptr(), static_cast<Py_ssize_t>(rank), token);
  }
  return nb::make_tuple(tokens, read.n_read());
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> character_ranges(const std::string& category,
                                                                      const std::string& unicode_version) {
  const auto all = categories(unicode_version_index(unicode_version));
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
  for (std::uint32_t code = 0; code < all.size(); ++code) {
    if (!kCategoryNames[static_cast<Byte>(all[code])].starts_with(category)) continue;
    if (ranges.empty() || ranges.back().second + 1 != code) ranges.emplace_back(code, code);
    ranges.back().second = code;
  }
  return ranges;
}

}  // namespace

NB_MODULE(_bpe, m) {
  m.doc() = "The C++ core of webtext.tokenizer.";
  m.attr("UNICODE_VERSION") = kUnicodeVersion;
  nb::list versions;
  for (const std::string_view version : kUnicodeVersions) versions.append(nb::str(version.data(), version.size()));
  m.attr("UNICODE_VERSIONS") = nb::tuple(versions);
  nb::list levels;
  for (const SimdLevel level : simd_levels()) levels.append(name_of(level));
  m.attr("SIMD_LEVELS") = nb::tuple(levels);  // the instruction sets that can be used, best first

  m.def("character_ranges", &character_ranges, "category"_a, "unicode_version"_a = kUnicodeVersion,
        "Return the first and last code points of each range of a category: 'L', 'Lu', 'Ll', 'Lt', 'Lm', 'Lo', 'M', "
        "'N',\n"
        "'Nd', 'P', 'S' or 'space'.");
  m.def(
      "byte_order", [] { return nb::bytes(byte_order().data(), 256); },
      "Return the 256 bytes in the order of GPT-2's first 256 tokens.");
  m.def("read_ranks", &read_ranks, "file"_a, "n_most"_a,
        nb::sig("def read_ranks(file: bytes, n_most: int) -> tuple[list[bytes], int]"),
        "Return the tokens of a rank file by rank (b'' where there is none), and the number of bytes read: up to the\n"
        "first line that is damaged or whose rank isn't new and below n_most.");
  m.def("last_safe_cut", &last_cut, "data"_a, "begin"_a, "at"_a, "end"_a, "unicode_version"_a = kUnicodeVersion,
        "Return the last position in data[at:end] where every pattern with a scanner cuts, or `begin` if there is "
        "none.\n"
        "The text begins at `begin` and may continue after `end`.");
  m.def("offset_pairs", &offset_pairs, "starts"_a, "ends"_a,
        nb::sig("def offset_pairs(starts: " ARRAY("numpy.int64") ", ends: " ARRAY(
            "numpy.int64") ") -> list[tuple[int, int]]"),
        "Return the pairs (starts[i], ends[i]).");
  m.def(
      "piece_ends", &piece_ends, "text"_a, "pattern"_a = "gpt2", "unicode_version"_a = kUnicodeVersion,
      "simd"_a.none() = nb::none(),
      nb::sig("def piece_ends(text: bytes, pattern: str = 'gpt2', unicode_version: str = UNICODE_VERSION, simd: str | "
              "None = None) -> " ARRAY("numpy.int64")),
      "Return the byte offset of the end of each piece, cut by a named pattern, with the best instruction set or the\n"
      "one of SIMD_LEVELS that `simd` names.");

  nb::class_<TextColumn>(m, "TextColumn", "The texts of an Arrow column, in its producer's memory.")
      .def(nb::init<nb::handle>(), "column"_a,
           nb::sig("def __init__(self, column: collections.abc.Iterable[str | bytes | None]) -> None"),
           "ValueError names a row that is null, a type other than strings and bytes, and a damaged column.")
      .def("__len__", [](const TextColumn& column) { return column.views().size(); })
      .def("__getitem__", [](const TextColumn& column, std::size_t row) {
        if (row >= column.views().size()) throw nb::index_error();
        return nb::bytes(column.views()[row].data(), column.views()[row].size());
      });
  nb::class_<IdColumn>(m, "IdColumn", "Lists of ids as an Arrow column, for pyarrow.array(column) and others.")
      .def(nb::init<IdColumn::Ids, IdColumn::Offsets>(), "ids"_a, "offsets"_a,
           nb::sig("def __init__(self, ids: " TOKENS ", offsets: " ARRAY("numpy.int64") ") -> None"),
           "`offsets` has one more item than there are rows, and rises within `ids`.")
      .def("__len__", &IdColumn::size)
      .def("__arrow_c_schema__", &IdColumn::schema)
      .def(
          "__arrow_c_array__", [](const IdColumn& column, nb::handle) { return column.array(); },
          "requested_schema"_a.none() = nb::none(),
          nb::sig("def __arrow_c_array__(self, requested_schema: typing_extensions.CapsuleType | None = None) -> "
                  "tuple[typing_extensions.CapsuleType, typing_extensions.CapsuleType]"));

  nb::class_<Bpe>(m, "Bpe", "Byte-level BPE with a fixed vocabulary. Safe to use from many threads.")
      .def(nb::new_(&make_bpe), "tokens"_a, "merges"_a.none(), "whole_pieces"_a, "special_tokens"_a,
           "pattern"_a = "gpt2", "unicode_version"_a = kUnicodeVersion,
           "tokens[id] is a token's bytes, b'' if text never produces it; merges None: the smallest id merges first.")
      .def("encode", &encode, "text"_a, nb::sig("def encode(self, text: " TEXT ") -> list[int]"),
           "Return the token ids of a text.")
      .def("encode_array", &encode_array, "text"_a, "wide"_a,
           nb::sig("def encode_array(self, text: " TEXT ", wide: bool) -> " TOKENS),
           "Return the token ids of a text as an array (uint32 if wide, else uint16).")
      .def("count", &count, "text"_a, nb::sig("def count(self, text: " TEXT ") -> int"),
           "Return the number of tokens of a text.")
      .def("encode_pieces", &encode_pieces, "text"_a, "ends"_a,
           nb::sig("def encode_pieces(self, text: " TEXT ", ends: Sequence[int]) -> list[int]"),
           "Return the token ids of a text that is already cut into pieces: piece i ends at byte ends[i].")
      .def(
          "encode_many",
          [](const Bpe& bpe, nb::handle texts, bool wide, unsigned threads) {
            if (const TextColumn* column = nullptr; nb::try_cast(texts, column)) {
              return encode_to_arrays(bpe, column->views(), wide, threads, false);
            }
            return encode_to_arrays(bpe, Texts(texts).views, wide, threads, false);
          },
          "texts"_a, "wide"_a, "threads"_a,
          nb::sig("def encode_many(self, texts: collections.abc.Iterable[" TEXT
                  "] | TextColumn, wide: bool, threads: int) -> "
                  "tuple[" TOKENS ", " ARRAY("numpy.int64") "]"),
          "Return the tokens of all texts in one array (uint32 if wide, else uint16), and the texts' int64 offsets.")
      .def("encode_lists", &encode_lists, "texts"_a, "threads"_a,
           nb::sig("def encode_lists(self, texts: Sequence[" TEXT "], threads: int) -> list[list[int]]"),
           "Return a list of token ids for each text.")
      .def(
          "encode_slices",
          [](const Bpe& bpe, const Array<const Byte>& data, const Array<const std::int64_t>& offsets, bool wide,
             unsigned threads) { return encode_to_arrays(bpe, slices(data, offsets), wide, threads, true); },
          "data"_a, "offsets"_a, "wide"_a, "threads"_a,
          nb::sig("def encode_slices(self, " SLICES ", wide: bool, threads: int) -> tuple[" TOKENS
                  ", " ARRAY("numpy.int64") "]"),
          "Encode the texts data[offsets[i]:offsets[i + 1]]; return the same as `encode_many`.")
      .def("encode_into", &encode_into_any, "data"_a, "offsets"_a, "out"_a, "threads"_a,
           nb::sig("def encode_into(self, " SLICES ", out: " TOKENS ", threads: int) -> " ARRAY("numpy.int64")),
           "Encode like `encode_slices` into the start of `out` and return the offsets. If `out` is shorter than the "
           "last\n"
           "offset, nothing is written. If it has room for 8 more tokens than the texts have bytes, nothing is copied.")
      .def("decode", &decode, "ids"_a,
           nb::sig("def decode(self, ids: collections.abc.Sequence[int] | " ARRAY("typing.Any") ") -> bytes"),
           "Return the bytes of tokens, including special ones. `ids` is a sequence of integers or an array (uint16,\n"
           "uint32 and int64 are fastest). IndexError names the first unknown id and its position.")
      .def("merges_by_rank", &Bpe::merges_by_rank,
           "Return, in order of id, the last merge of each token of two or more bytes, using only smaller ids.");
}
