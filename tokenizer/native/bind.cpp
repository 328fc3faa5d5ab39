// Bindings of the byte-level BPE core: conversion, GIL release and docstrings only.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bind_dropout.hpp"
#include "bpe.hpp"
#include "byte_order.hpp"
#include "safe_cut.hpp"
#include "texts.hpp"
#include "to_array.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using webtext::begin_of;
using webtext::Bpe;
using webtext::Byte;
using webtext::end_of;
using webtext::Scanner;
using webtext::Texts;
using webtext::to_array;
using webtext::view;

namespace {

template <class Item>
using Array = nb::ndarray<const Item, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

// The Python int of an id. Each is made once and shared by all lists, which halves the time to make a list.
nb::object to_int(std::uint32_t id) {
  constexpr std::size_t kShared = 1 << 18;
  static std::vector<PyObject*> shared(kShared, nullptr);
  if (id >= kShared) return nb::int_(id);
  if (!shared[id]) shared[id] = nb::int_(id).release().ptr();
  return nb::borrow(shared[id]);
}

nb::list to_list(const std::vector<std::uint32_t>& tokens) {
  nb::list list = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(tokens.size())));
  if (!list.is_valid()) throw nb::python_error();
  for (std::size_t index = 0; index < tokens.size(); ++index) {
    PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(index), to_int(tokens[index]).release().ptr());
  }
  return list;
}

template <class Token>
std::vector<Token> encode(const Bpe& bpe, std::string_view text) {
  nb::gil_scoped_release release;
  std::vector<Token> tokens;
  bpe.encode(begin_of(text), end_of(text), tokens);
  return tokens;
}

template <class Token>
nb::tuple encode_many(const Bpe& bpe, const std::vector<std::string_view>& texts, unsigned n_threads) {
  std::vector<Token> tokens;
  std::vector<std::int64_t> offsets(texts.size() + 1);
  {
    nb::gil_scoped_release release;
    bpe.encode_many(texts, n_threads, tokens, offsets.data());
  }
  return nb::make_tuple(to_array(std::move(tokens)), to_array(std::move(offsets)));
}

std::vector<std::string_view> slices(const Array<Byte>& data, const Array<std::int64_t>& offsets) {
  std::vector<std::string_view> texts;
  for (std::size_t index = 1; index < offsets.size(); ++index) {
    const std::int64_t first = offsets(index - 1), last = offsets(index);
    if (first < 0 || last < first || static_cast<std::size_t>(last) > data.size()) {
      throw std::invalid_argument("offsets must rise from 0 to at most " + std::to_string(data.size()) + ": offset " +
                                  std::to_string(index) + " is " + std::to_string(last));
    }
    texts.emplace_back(reinterpret_cast<const char*>(data.data()) + first, static_cast<std::size_t>(last - first));
  }
  return texts;
}

// The bytes of ids[0..n); `id_at(i)` reads one.
template <class IdAt>
std::string joined_bytes(const Bpe& bpe, std::size_t n_ids, const IdAt& id_at) {
  std::string bytes;
  for (std::size_t index = 0; index < n_ids; ++index) {
    const auto id = id_at(index);
    const std::string_view token = bpe.bytes_of(static_cast<std::uint64_t>(id));
    if (token.empty()) {
      throw std::out_of_range("unknown token id " + std::to_string(id) + " at position " + std::to_string(index));
    }
    bytes += token;
  }
  return bytes;
}

template <class Id>
nb::bytes decode_array(const Bpe& bpe, const Array<Id>& ids) {
  std::string bytes;
  {
    nb::gil_scoped_release release;
    bytes = joined_bytes(bpe, ids.size(), [&](std::size_t index) { return ids.data()[index]; });
  }
  return nb::bytes(bytes.data(), bytes.size());
}

nb::bytes decode_sequence(const Bpe& bpe, nb::handle sequence) {
  const auto items = nb::steal<nb::tuple>(PySequence_Tuple(sequence.ptr()));
  if (!items.is_valid()) throw nb::python_error();
  const std::string bytes = joined_bytes(bpe, items.size(), [&](std::size_t index) -> long long {
    if (PyBool_Check(items[index].ptr())) throw nb::type_error("a bool is no id");
    const auto number = nb::steal(PyNumber_Index(items[index].ptr()));
    if (!number.is_valid()) throw nb::python_error();
    int overflow = 0;
    return PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);  // -1, an unknown id, when it does not fit
  });
  return nb::bytes(bytes.data(), bytes.size());
}

nb::bytes decode(const Bpe& bpe, nb::handle ids) {
  if (Array<std::uint16_t> array; nb::try_cast(ids, array, false)) return decode_array(bpe, array);
  if (Array<std::uint32_t> array; nb::try_cast(ids, array, false)) return decode_array(bpe, array);
  if (Array<std::int64_t> array; nb::try_cast(ids, array, false)) return decode_array(bpe, array);
  return decode_sequence(bpe, ids);
}

Bpe* make_bpe(const std::vector<nb::bytes>& tokens, const std::optional<Pairs>& merges, bool whole_pieces,
              const std::vector<std::pair<std::uint32_t, nb::bytes>>& special_tokens, const std::string& pattern,
              const std::string& unicode_version) {
  const auto text = [](const nb::bytes& bytes) { return std::string(bytes.c_str(), bytes.size()); };
  std::vector<std::string> texts;
  for (const nb::bytes& token : tokens) texts.push_back(text(token));
  std::vector<std::pair<std::uint32_t, std::string>> specials;
  for (const auto& [id, token] : special_tokens) specials.emplace_back(id, text(token));
  std::optional<std::vector<webtext::Merge>> rules;
  if (merges) {
    rules.emplace();
    for (const auto& [left, right] : *merges) rules->push_back({left, right});
  }
  return new Bpe(Scanner(pattern, unicode_version), std::move(texts), rules, whole_pieces, std::move(specials));
}

}  // namespace

NB_MODULE(_bpe, m) {
  m.doc() = "The C++ core of webtext.tokenizer.";
  m.attr("UNICODE_VERSION") = webtext::kUnicodeVersion;

  m.def(
      "character_ranges",
      [](const std::string& kind) {
        Pairs ranges;
        const auto add = [&](const auto& table) {
          for (auto [first, last] : table) ranges.emplace_back(first, last);
        };
        if (kind == "letter") add(webtext::kLetterRanges);
        if (kind == "number") add(webtext::kNumberRanges);
        if (kind == "space") add(webtext::kSpaceRanges);
        return ranges;
      },
      "kind"_a, "First and last code points of all 'letter', 'number' or 'space' characters of UNICODE_VERSION.");

  m.def(
      "byte_order", [] { return nb::bytes(webtext::byte_order().data(), 256); },
      "The 256 bytes in the order of GPT-2's first 256 tokens.");

  m.def(
      "split",
      [](nb::handle text, const std::string& pattern, const std::string& unicode_version) {
        const std::string_view whole = view(text);
        nb::list pieces;
        Scanner(pattern, unicode_version)
            .each_piece(begin_of(whole), end_of(whole),
                        [&](const Byte* piece, std::size_t n_bytes) { pieces.append(nb::bytes(piece, n_bytes)); });
        return pieces;
      },
      "text"_a, "pattern"_a = "gpt2", "unicode_version"_a = webtext::kUnicodeVersion,
      nb::sig(
          "def split(text: str | bytes, pattern: str = 'gpt2', unicode_version: str = UNICODE_VERSION) -> list[bytes]"),
      "The pieces that a pattern, told by name, cuts a text into.");

  m.def(
      "last_safe_cut",
      [](const nb::bytearray& data, std::size_t begin, std::size_t at, std::size_t end, bool joins_words) {
        if (begin > at || at > end || end > data.size()) throw std::invalid_argument("places must rise in the data");
        const auto* bytes = reinterpret_cast<const Byte*>(data.c_str());
        return webtext::last_safe_cut(webtext::ClassTable::instance(), bytes + begin, bytes + at, bytes + end,
                                      joins_words) -
               bytes;
      },
      "data"_a, "begin"_a, "at"_a, "end"_a, "joins_words"_a = false,
      "The last place of data[at:end] where every pattern that has a scanner cuts, in a text that begins at `begin` "
      "and "
      "may\ngo on after `end`; `begin` when there is none.");

  nb::class_<Bpe>(m, "Bpe", "Byte-level BPE with a fixed vocabulary. Safe to use from many threads.")
      .def(nb::new_(&make_bpe), "tokens"_a, "merges"_a.none(), "whole_pieces"_a, "special_tokens"_a,
           "pattern"_a = "gpt2", "unicode_version"_a = webtext::kUnicodeVersion,
           "tokens[id] are a token's bytes, b'' where text gives none; merges None: the smallest id merges first.")
      .def(
          "encode", [](const Bpe& bpe, nb::handle text) { return to_list(encode<std::uint32_t>(bpe, view(text))); },
          "text"_a, nb::sig("def encode(self, text: str | bytes) -> list[int]"),
          "Token ids of a text cut by GPT-2's pattern.")
      .def(
          "count", [](const Bpe& bpe, nb::handle text) { return encode<std::uint32_t>(bpe, view(text)).size(); },
          "text"_a, nb::sig("def count(self, text: str | bytes) -> int"),
          "Number of tokens of a text cut by GPT-2's pattern.")
      .def(
          "encode_pieces",
          [](const Bpe& bpe, nb::handle text, const std::vector<std::int64_t>& ends) {
            const std::string_view whole = view(text);
            std::int64_t last = 0;
            for (const std::int64_t end : ends) {
              if (end < last || static_cast<std::size_t>(end) > whole.size()) {
                throw std::invalid_argument("piece ends must rise within the text");
              }
              last = end;
            }
            std::vector<std::uint32_t> tokens;
            {
              nb::gil_scoped_release release;
              bpe.encode_pieces(begin_of(whole), ends.data(), ends.size(), tokens);
            }
            return to_list(tokens);
          },
          "text"_a, "ends"_a, nb::sig("def encode_pieces(self, text: str | bytes, ends: Sequence[int]) -> list[int]"),
          "Token ids of a text that was cut elsewhere: piece i ends at byte ends[i].")
      .def(
          "encode_many",
          [](const Bpe& bpe, nb::handle texts, bool wide, unsigned threads) {
            const Texts all(texts);
            return wide ? encode_many<std::uint32_t>(bpe, all.views, threads)
                        : encode_many<std::uint16_t>(bpe, all.views, threads);
          },
          "texts"_a, "wide"_a, "threads"_a,
          nb::sig("def encode_many(self, texts: Sequence[str | bytes], wide: bool, threads: int) -> tuple[typing.Any, "
                  "typing.Any]"),
          "Tokens of all texts in one array (uint32 if wide, else uint16) and the int64 offset where each begins.")
      .def(
          "encode_slices",
          [](const Bpe& bpe, const Array<Byte>& data, const Array<std::int64_t>& offsets, bool wide, unsigned threads) {
            const auto texts = slices(data, offsets);
            return wide ? encode_many<std::uint32_t>(bpe, texts, threads)
                        : encode_many<std::uint16_t>(bpe, texts, threads);
          },
          "data"_a, "offsets"_a, "wide"_a, "threads"_a,
          nb::sig("def encode_slices(self, data: object, offsets: object, wide: bool, threads: int) -> "
                  "tuple[typing.Any, typing.Any]"),
          "The same for texts that lie in one buffer.")
      .def("decode", &decode, "ids"_a, nb::sig("def decode(self, ids: object) -> bytes"),
           "The bytes of tokens, special ones included; ids are integers in a sequence, or an array (uint16, uint32 "
           "and\n"
           "int64 at full speed). IndexError names the first unknown id and its position.")
      .def(
          "merges_by_rank",
          [](const Bpe& bpe) {
            Pairs pairs;
            for (auto [left, right] : bpe.merges_by_rank()) pairs.emplace_back(left, right);
            return pairs;
          },
          "Per token of two bytes or more, in order of id, the two tokens that smaller ids leave of its bytes.");
  webtext::bind_dropout(m);
}
