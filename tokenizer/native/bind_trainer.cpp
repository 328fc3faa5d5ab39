// Bindings of the trainer: counting pieces and merging pairs.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "piece_counts.hpp"
#include "safe_cut.hpp"
#include "texts.hpp"
#include "threads.hpp"
#include "trainer.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using webtext::begin_of;
using webtext::Byte;
using webtext::end_of;
using webtext::PieceCounts;
using webtext::Scanner;
using webtext::Texts;

namespace {

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

void count_texts(PieceCounts& counts, const Scanner& scanner, const std::vector<std::string_view>& texts,
                 unsigned n_threads) {
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

}  // namespace

NB_MODULE(_trainer, m) {
  m.doc() = "The C++ core of webtext.tokenizer's training.";

  nb::class_<PieceCounts>(m, "PieceCounts", "How often each distinct piece occurs; what training needs of a corpus.")
      .def(nb::init<>())
      .def("__len__", &PieceCounts::size)
      .def(
          "add_texts",
          [](PieceCounts& counts, nb::handle texts, unsigned threads, const std::string& pattern,
             const std::string& unicode_version) {
            const Texts all(texts);
            const Scanner scanner(pattern, unicode_version);
            nb::gil_scoped_release release;
            count_texts(counts, scanner, all.views, threads);
          },
          "texts"_a, "threads"_a = 1, "pattern"_a = "gpt2", "unicode_version"_a = webtext::kUnicodeVersion,
          nb::sig("def add_texts(self, texts: Sequence[str | bytes], threads: int = 1, pattern: str = 'gpt2', "
                  "unicode_version: str = '16.0.0') -> None"),
          "Cut texts (str or bytes) by a pattern and count the pieces.")
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
      "safe_cut",
      [](nb::bytes text, std::size_t at, const std::string& unicode_version) {
        const std::string_view bytes(text.c_str(), text.size());
        if (at > bytes.size()) throw std::invalid_argument("no place in the text");
        const Scanner scanner("gpt2", unicode_version);
        const Byte* begin = begin_of(bytes);
        return webtext::safe_cut(scanner.classes(), begin, begin + at, end_of(bytes)) - begin;
      },
      "text"_a, "at"_a, "unicode_version"_a = webtext::kUnicodeVersion,
      "The first place at or after `at` where every pattern with a scanner cuts, else the length of the text.");

  m.def(
      "train", &train, "counts"_a, "n_tokens"_a, "min_frequency"_a,
      "Byte-pair merges in order, each as two token ids; bytes are tokens 0 to 255 in `byte_order`, every other token\n"
      "is new with its merge unless an earlier merge gave the same bytes. Equal to HF tokenizers' merges.");
}
