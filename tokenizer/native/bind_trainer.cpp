// Bindings of the trainer: counting pieces and merging pairs.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bind_counts.hpp"
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

Pairs train(LockedCounts& counts, std::size_t n_tokens, std::int64_t min_frequency) {
  constexpr std::size_t kMergesPerSignalCheck = 256, kTableMemory = std::size_t{64} << 20;
  const std::vector<webtext::TrainedMerge> merges = counts.with([&](PieceCounts& all, const auto& keep_going) {
    all.shrink(kTableMemory);
    return webtext::train_merges(all, n_tokens, min_frequency, [&](std::size_t n_merges) {
      return n_merges % kMergesPerSignalCheck != 0 || keep_going();
    });
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
