// Bindings of the trainer: counting pieces and merging pairs.
#include "train/trainer.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/texts.hpp"
#include "encode/bpe.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace webtext;

namespace {

// Counts with a lock, so that Python threads can share them without the GIL.
class LockedCounts {
 public:
  LockedCounts(std::string pattern, std::string unicode_version, std::size_t max_memory, std::string folder)
      : counts_(std::move(pattern), std::move(unicode_version), max_memory, std::move(folder)) {}
  LockedCounts(const LockedCounts&) = delete;

  // Returns use(counts), called without the GIL and by one thread at a time.
  template <class Use>
  auto with(const Use& use) {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    return use(counts_);
  }

 private:
  PieceCounts counts_;
  std::mutex mutex_;
};

// Raises the exception of a signal's handler (Ctrl-C), if there is one.
void check_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

using Block = nb::ndarray<const Byte, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::size_t add_block(LockedCounts& counts, const Block& block, bool is_last, std::int64_t weight, unsigned threads) {
  const std::string_view bytes = view_of(block.data(), block.size());
  return counts.with([&](PieceCounts& all) {
    if (!is_last) return all.add_start_of(bytes, weight, threads, check_signals);
    all.add_texts({bytes}, weight, threads, check_signals);
    return bytes.size();
  });
}

void add_pieces(LockedCounts& counts, nb::handle pieces, const std::vector<std::int64_t>& times) {
  const Texts texts(pieces);
  if (texts.views.size() != times.size()) throw std::invalid_argument("as many counts as pieces are needed");
  counts.with([&](PieceCounts& all) {
    for (std::size_t index = 0; index < times.size(); ++index) {
      all.add(texts.views[index], times[index]);
    }
  });
}

nb::list items(LockedCounts& counts) {
  std::vector<std::pair<std::string, std::int64_t>> found;
  counts.with([&](PieceCounts& all) {
    all.settle();
    all.each([&](std::string_view piece, std::int64_t count) { found.emplace_back(piece, count); });
  });
  nb::list pairs;
  for (const auto& [piece, count] : found) pairs.append(nb::make_tuple(nb::bytes(piece.data(), piece.size()), count));
  return pairs;
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

// The tokens of a vocabulary to extend, its merges (none for a rank vocabulary), and its `whole_pieces`.
using Base = std::tuple<std::vector<nb::bytes>, std::optional<std::vector<Merge>>, bool>;

// The start of training: the initial tokens, and the function that encodes a piece with them.
struct Start {
  TokenTable tokens;
  EncodePiece encode;
};

Start start_of(const std::optional<Base>& base) {
  if (!base) return {byte_tokens(), encode_bytes()};
  const auto& [bytes, merges, whole_pieces] = *base;
  const std::vector<std::string_view> tokens = views_of(bytes);
  Start start;
  for (const std::string_view token : tokens) start.tokens.add(token);
  const Scanner unused("gpt2", kUnicodeVersion);
  const auto bpe =
      std::make_shared<Bpe>(unused, tokens, merges, whole_pieces, std::vector<std::pair<std::uint32_t, std::string>>());
  start.encode = [bpe](std::string_view piece, std::vector<std::uint32_t>& into) {
    const auto end = static_cast<std::int64_t>(piece.size());
    const std::size_t n_before = into.size();
    into.resize(n_before + piece.size() + Bpe::kSlack);
    into.resize(n_before + bpe->encode_pieces(piece, &end, 1, &into[n_before]));
  };
  return start;
}

std::vector<Merge> train(LockedCounts& counts, std::size_t n_tokens, std::int64_t min_frequency,
                         std::optional<std::size_t> max_token_length, const std::optional<Base>& base,
                         const std::optional<nb::callable>& progress) {
  Goal goal{n_tokens, min_frequency};
  if (max_token_length) goal.max_token_length = *max_token_length;
  Start start = start_of(base);
  const auto report = [&](std::size_t n_merges, double loaded) {
    check_signals();
    if (!progress) return;
    const nb::gil_scoped_acquire acquire;
    (*progress)(n_merges, loaded);
  };
  return counts.with(
      [&](PieceCounts& all) { return train_merges(all, std::move(start.tokens), start.encode, goal, report); });
}

}  // namespace

NB_MODULE(_trainer, m) {
  m.doc() = "The C++ core of webtext.tokenizer's training.";

  nb::register_exception_translator(translate);

  nb::class_<LockedCounts>(m, "PieceCounts", "Counts of distinct pieces: all that training needs of a corpus.")
      .def(nb::init<std::string, std::string, std::size_t, std::string>(), "pattern"_a = "gpt2",
           "unicode_version"_a = kUnicodeVersion, "max_memory"_a = PieceCounts::kDefaultMemory, "folder"_a = "/tmp",
           "Tables take at most `max_memory` bytes; counts above that are spilled to nameless files in `folder`.")
      .def("__len__",
           [](LockedCounts& counts) {
             return counts.with([](PieceCounts& all) {
               all.settle();
               return all.size();
             });
           })
      .def(
          "add_texts",
          [](LockedCounts& counts, nb::handle texts, std::int64_t weight, unsigned threads) {
            const Texts all_texts(texts);
            counts.with([&](PieceCounts& all) { all.add_texts(all_texts.views, weight, threads, check_signals); });
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
      .def("items", &items, nb::sig("def items(self) -> list[tuple[bytes, int]]"), "Return all pieces and counts.");

  m.def(
      "train", &train, "counts"_a, "n_tokens"_a, "min_frequency"_a = 1, "max_token_length"_a = nb::none(),
      "base"_a = nb::none(), "progress"_a = nb::none(),
      nb::sig("def train(counts: PieceCounts, n_tokens: int, min_frequency: int = 1, max_token_length: int | None = "
              "None, base: tuple[collections.abc.Sequence[bytes], collections.abc.Sequence[tuple[int, int]] | None, "
              "bool] | None = None, "
              "progress: collections.abc.Callable[[int, float], object] | None = None) -> list[tuple[int, int]]"),
      "Learn byte-pair merges and return them in order, each as two token ids. Bytes are tokens 0 to 255 in\n"
      "`byte_order`; every merge creates the next token. The merges equal HF tokenizers': tokens are shorter than\n"
      "`max_token_length` bytes, except that two bytes may always merge. `base` is a Vocabulary's tokens, merges and\n"
      "whole_pieces: pieces are then encoded with it first, new tokens follow its own, and two tokens whose joined\n"
      "bytes are a token already don't merge. `progress` is called with the number of merges, and the share of the\n"
      "pieces that is loaded, about a hundred times per second. A signal, or an exception from `progress`, ends "
      "training.");
}
