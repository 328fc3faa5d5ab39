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

#include "bpe.hpp"
#include "piece_counts.hpp"
#include "threads.hpp"
#include "trainer.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using webtext::Bpe;
using webtext::Byte;
using webtext::PieceCounts;

namespace {

template <class Item>
using Array = nb::ndarray<const Item, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

const Byte* begin_of(std::string_view text) { return reinterpret_cast<const Byte*>(text.data()); }
const Byte* end_of(std::string_view text) { return begin_of(text) + text.size(); }

// The UTF-8 of a str, which lives as long as the str does, or the bytes of a bytes object.
std::string_view view(nb::handle text) {
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

// Views of many texts, kept alive by a tuple that no other thread can change.
struct Texts {
  explicit Texts(nb::handle sequence) : items(nb::steal<nb::tuple>(PySequence_Tuple(sequence.ptr()))) {
    if (!items.is_valid()) throw nb::python_error();
    for (nb::handle item : items) views.push_back(view(item));
  }
  nb::tuple items;
  std::vector<std::string_view> views;
};

template <class Item>
nb::object to_array(std::vector<Item> items) {
  auto* owned = new std::vector<Item>(std::move(items));
  nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<Item>*>(memory); });
  return nb::cast(nb::ndarray<nb::numpy, Item, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

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

void count_texts(PieceCounts& counts, const std::vector<std::string_view>& texts, unsigned n_threads) {
  const webtext::Gpt2Scanner scanner;
  std::vector<PieceCounts> parts(std::max(1u, n_threads) - 1);
  const std::size_t n = parts.size() + 1;
  webtext::in_threads(n, [&](std::size_t thread) {
    PieceCounts& into = thread == 0 ? counts : parts[thread - 1];
    for (std::size_t text = thread; text < texts.size(); text += n) {
      into.add_text(scanner, begin_of(texts[text]), end_of(texts[text]));
    }
  });
  for (const PieceCounts& part : parts) counts.add_all(part);
}

Pairs train(const PieceCounts& counts, std::size_t n_tokens, std::int64_t min_frequency) {
  constexpr std::size_t kMergesPerSignalCheck = 256;
  std::vector<webtext::TrainedMerge> merges;
  bool interrupted = false;
  {
    nb::gil_scoped_release release;
    merges = webtext::train_merges(counts, n_tokens, min_frequency, [&](std::size_t n_merges) {
      if (n_merges % kMergesPerSignalCheck) return true;
      nb::gil_scoped_acquire acquire;
      return !(interrupted = PyErr_CheckSignals() != 0);
    });
  }
  if (interrupted) throw nb::python_error();
  Pairs pairs;
  for (const auto& merge : merges) pairs.emplace_back(merge.left, merge.right);
  return pairs;
}

Bpe* make_bpe(const std::vector<nb::bytes>& tokens, const std::optional<Pairs>& merges, bool whole_pieces,
              const std::vector<std::pair<std::uint32_t, nb::bytes>>& special_tokens) {
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
  return new Bpe(std::move(texts), rules, whole_pieces, std::move(specials));
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
      [](nb::handle text) {
        const std::string_view whole = view(text);
        const webtext::Gpt2Scanner scanner;
        nb::list pieces;
        for (const Byte *at = begin_of(whole), *end = end_of(whole); at < end;) {
          const Byte* after = scanner.piece_end(at, end);
          pieces.append(nb::bytes(at, static_cast<std::size_t>(after - at)));
          at = after;
        }
        return pieces;
      },
      "text"_a, nb::sig("def split(text: str | bytes) -> list[bytes]"),
      "The pieces that GPT-2's pattern cuts a text into, as bytes.");

  nb::class_<PieceCounts>(m, "PieceCounts", "How often each distinct piece occurs; what training needs of a corpus.")
      .def(nb::init<>())
      .def("__len__", &PieceCounts::size)
      .def(
          "add_texts",
          [](PieceCounts& counts, nb::handle texts, unsigned threads) {
            const Texts all(texts);
            nb::gil_scoped_release release;
            count_texts(counts, all.views, threads);
          },
          "texts"_a, "threads"_a = 1,
          nb::sig("def add_texts(self, texts: Sequence[str | bytes], threads: int = 1) -> None"),
          "Cut texts (str or bytes) by GPT-2's pattern and count the pieces.")
      .def(
          "add_pieces",
          [](PieceCounts& counts, nb::handle pieces, const std::vector<std::int64_t>& times) {
            const Texts all(pieces);
            if (all.views.size() != times.size()) throw std::invalid_argument("as many counts as pieces are needed");
            for (std::size_t index = 0; index < times.size(); ++index) {
              counts.add(begin_of(all.views[index]), all.views[index].size(), times[index]);
            }
          },
          "pieces"_a, "counts"_a,
          nb::sig("def add_pieces(self, pieces: Sequence[str | bytes], counts: Sequence[int]) -> None"),
          "Add pieces that were cut and counted elsewhere.");

  m.def(
      "train", &train, "counts"_a, "n_tokens"_a, "min_frequency"_a,
      "Byte-pair merges in order, each as two token ids; bytes are tokens 0 to 255 in `byte_order`, every other token\n"
      "is new with its merge unless an earlier merge gave the same bytes. Equal to HF tokenizers' merges.");

  nb::class_<Bpe>(m, "Bpe", "Byte-level BPE with a fixed vocabulary. Safe to use from many threads.")
      .def(nb::new_(&make_bpe), "tokens"_a, "merges"_a.none(), "whole_pieces"_a, "special_tokens"_a,
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
}
