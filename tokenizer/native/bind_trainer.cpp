// Bindings of the trainer: counting pieces and merging pairs.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bind_counts.hpp"
#include "bpe.hpp"
#include "safe_cut.hpp"
#include "texts.hpp"
#include "trainer.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using webtext::begin_of;
using webtext::Byte;
using webtext::end_of;
using webtext::LockedCounts;
using webtext::PieceCounts;
using webtext::Scanner;
using webtext::Texts;

namespace {

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

// The tokens of a vocabulary to extend, its merges (none for a rank vocabulary), and its `whole_pieces`.
using Base = std::tuple<std::vector<nb::bytes>, std::optional<Pairs>, bool>;

// The start of training: the initial tokens, and the function that encodes a piece with them.
struct Start {
  webtext::TokenTable tokens;
  webtext::EncodePiece encode;
};

Start start_of(const std::optional<Base>& base) {
  if (!base) return {webtext::byte_tokens(), webtext::encode_bytes()};
  const auto& [bytes, pairs, whole_pieces] = *base;
  const std::vector<std::string> tokens = webtext::strings_of(bytes);
  Start start;
  for (const std::string& token : tokens) start.tokens.add(token);
  std::optional<std::vector<webtext::Merge>> merges;
  if (pairs) {
    merges.emplace();
    for (const auto& [left, right] : *pairs) merges->push_back({left, right});
  }
  const Scanner unused("gpt2", webtext::kUnicodeVersion);
  const auto bpe = std::make_shared<webtext::Bpe>(unused, tokens, merges, whole_pieces,
                                                  std::vector<std::pair<std::uint32_t, std::string>>());
  start.encode = [bpe](const Byte* piece, std::size_t n_bytes, std::vector<std::uint32_t>& into) {
    const auto end = static_cast<std::int64_t>(n_bytes);
    const std::size_t n_before = into.size();
    into.resize(n_before + n_bytes + webtext::Bpe::kSlack);
    into.resize(n_before + bpe->encode_pieces(piece, &end, 1, &into[n_before]));
  };
  return start;
}

Pairs train(LockedCounts& counts, std::size_t n_tokens, std::int64_t min_frequency,
            std::optional<std::size_t> max_token_length, const std::optional<Base>& base,
            const std::optional<nb::callable>& progress) {
  constexpr std::size_t kTableMemory = std::size_t{64} << 20;
  webtext::Goal goal{n_tokens, min_frequency};
  if (max_token_length) goal.max_token_length = *max_token_length;
  Start start = start_of(base);
  const auto report = [&](std::size_t n_merges) {
    nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (progress) (*progress)(n_merges);
  };
  const auto merges = counts.with([&](PieceCounts& all, const auto&) {
    all.shrink(kTableMemory);
    return webtext::train_merges(all, std::move(start.tokens), start.encode, goal, report);
  });
  Pairs pairs;
  for (const auto& merge : merges) pairs.emplace_back(merge.left, merge.right);
  return pairs;
}

}  // namespace

NB_MODULE(_trainer, m) {
  m.doc() = "The C++ core of webtext.tokenizer's training.";

  webtext::bind_counts(m);

  m.def(
      "safe_cut",
      [](nb::bytes text, std::size_t at, const std::string& unicode_version) {
        const std::string_view bytes(text.c_str(), text.size());
        if (at > bytes.size()) throw std::invalid_argument("`at` is after the end of the text");
        const Scanner scanner("gpt2", unicode_version);
        const Byte* begin = begin_of(bytes);
        return webtext::safe_cut(scanner.classes(), begin, begin + at, end_of(bytes)) - begin;
      },
      "text"_a, "at"_a, "unicode_version"_a = webtext::kUnicodeVersion,
      "Return the first position at or after `at` where every pattern with a scanner cuts, else the text's length.");

  m.def(
      "train", &train, "counts"_a, "n_tokens"_a, "min_frequency"_a = 1, "max_token_length"_a = nb::none(),
      "base"_a = nb::none(), "progress"_a = nb::none(),
      nb::sig("def train(counts: PieceCounts, n_tokens: int, min_frequency: int = 1, max_token_length: int | None = "
              "None, base: tuple[collections.abc.Sequence[bytes], collections.abc.Sequence[tuple[int, int]] | None, "
              "bool] | None = None, "
              "progress: collections.abc.Callable[[int], object] | None = None) -> list[tuple[int, int]]"),
      "Learn byte-pair merges and return them in order, each as two token ids. Bytes are tokens 0 to 255 in\n"
      "`byte_order`; every merge creates the next token. The merges equal HF tokenizers': tokens are shorter than\n"
      "`max_token_length` bytes, except that two bytes may always merge. `base` is a Vocabulary's tokens, merges and\n"
      "whole_pieces: pieces are then encoded with it first, new tokens follow its own, and two tokens whose joined\n"
      "bytes are a token already don't merge. `progress` is called with the number of merges about a hundred times\n"
      "per second. A signal, or an exception from `progress`, ends training.");
}
