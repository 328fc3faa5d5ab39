// Binding of encoding with BPE-dropout.
#include "bind_dropout.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <stdexcept>

#include "bpe.hpp"
#include "dropout.hpp"
#include "texts.hpp"
#include "threads.hpp"
#include "to_array.hpp"

namespace webtext {
namespace {

using Ends = std::vector<std::int64_t>;  // where the pieces of one text end

struct Job {
  std::vector<std::string_view> texts;
  std::vector<std::uint64_t> indices;
  std::optional<std::vector<Ends>> ends;
  double dropout;
  std::uint64_t seed;
};

void check(const Job& job) {
  if (job.indices.size() != job.texts.size()) throw std::invalid_argument("as many indices as texts are needed");
  if (!job.ends) return;
  if (job.ends->size() != job.texts.size()) throw std::invalid_argument("as many lists of ends as texts are needed");
  for (std::size_t text = 0; text < job.texts.size(); ++text) {
    std::int64_t last = 0;
    for (const std::int64_t end : (*job.ends)[text]) {
      if (end < last || static_cast<std::size_t>(end) > job.texts[text].size()) {
        throw std::invalid_argument("piece ends must rise within the text");
      }
      last = end;
    }
  }
}

template <class Token>
void encode_text(const Bpe& bpe, const Job& job, std::size_t text, DropoutMerger& merger, std::vector<Token>& out) {
  RandomStream random(job.seed, job.indices[text]);
  const auto token_of = [&](Byte byte) { return bpe.byte_token(byte); };
  const auto encode_piece = [&](const Byte* piece, std::size_t n_bytes) {
    const auto& tokens = merger(bpe.rules(), token_of, piece, n_bytes, job.dropout, random);
    out.insert(out.end(), tokens.begin(), tokens.end());
  };
  const Byte *begin = begin_of(job.texts[text]), *end = end_of(job.texts[text]);
  if (!job.ends) return bpe.scanner().each_piece(begin, end, encode_piece);
  std::int64_t start = 0;
  for (const std::int64_t piece_end : (*job.ends)[text]) {
    if (piece_end - start > kFarthestEnd) throw std::length_error("a piece of 4 GiB or more");
    encode_piece(begin + start, static_cast<std::size_t>(piece_end - start));
    start = piece_end;
  }
}

template <class Token>
nb::tuple encode(const Bpe& bpe, const Job& job, unsigned n_threads) {
  constexpr std::size_t kTextsAtOnce = 16;
  std::vector<Token> tokens;
  std::vector<std::int64_t> offsets(job.texts.size() + 1);
  {
    nb::gil_scoped_release release;
    std::vector<std::vector<Token>> runs((job.texts.size() + kTextsAtOnce - 1) / kTextsAtOnce);
    std::atomic<std::size_t> next{0};
    in_threads(std::max<std::size_t>(1, std::min<std::size_t>(n_threads, runs.size())), [&](std::size_t) {
      DropoutMerger merger;
      for (std::size_t run; (run = next++) < runs.size();) {
        const std::size_t first = run * kTextsAtOnce, last = std::min(first + kTextsAtOnce, job.texts.size());
        for (std::size_t text = first; text < last; ++text) {
          const std::size_t before = runs[run].size();
          encode_text(bpe, job, text, merger, runs[run]);
          offsets[text + 1] = static_cast<std::int64_t>(runs[run].size() - before);
        }
      }
    });
    for (std::size_t text = 0; text < job.texts.size(); ++text) offsets[text + 1] += offsets[text];
    tokens.reserve(static_cast<std::size_t>(offsets.back()));
    for (const auto& run : runs) tokens.insert(tokens.end(), run.begin(), run.end());
  }
  return nb::make_tuple(to_array(std::move(tokens)), to_array(std::move(offsets)));
}

}  // namespace

void bind_dropout(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "encode_with_dropout",
      [](const Bpe& bpe, nb::handle texts, std::vector<std::uint64_t> indices, std::optional<std::vector<Ends>> ends,
         double dropout, std::uint64_t seed, bool wide, unsigned threads) {
        const Texts all(texts);
        const Job job{all.views, std::move(indices), std::move(ends), dropout, seed};
        check(job);
        return wide ? encode<std::uint32_t>(bpe, job, threads) : encode<std::uint16_t>(bpe, job, threads);
      },
      "bpe"_a, "texts"_a, "indices"_a, "ends"_a.none(), "dropout"_a, "seed"_a, "wide"_a, "threads"_a,
      nb::sig("def encode_with_dropout(bpe: Bpe, texts: Sequence[str | bytes], indices: Sequence[int], ends: "
              "Sequence[Sequence[int]] | None, dropout: float, seed: int, wide: bool, threads: int) -> "
              "tuple[numpy.typing.NDArray[numpy.uint16] | numpy.typing.NDArray[numpy.uint32], "
              "numpy.typing.NDArray[numpy.int64]]"),
      "As `encode_many`, each possible merge dropped with a probability. Text i draws its random numbers from (seed,\n"
      "indices[i]); ends[i] are where its pieces end if it was cut elsewhere.");
}

}  // namespace webtext
