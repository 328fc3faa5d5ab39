// Cutting text into pieces before any merge, by a named pattern and the character classes of one Unicode version.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "base/simd.hpp"
#include "scan/characters.hpp"

namespace webtext {

class Scanner {
 public:
  // The scanner of a pattern ("gpt2") with the tables of a Unicode version ("16.0.0"). Throws std::invalid_argument if
  // there is no such scanner or table.
  Scanner(std::string_view pattern, std::string_view unicode_version, SimdLevel level = simd_level());

  // Cuts the text [begin, end), whose first byte begins a piece: writes the ends of pieces, relative to `begin`, until
  // the text ends or there is room for few of at most `max`, and returns their number. The text after the last end can
  // be cut by another call, because no piece depends on what precedes it. Throws std::length_error for a piece of 4 GiB
  // or more.
  std::size_t cut(const Byte* begin, const Byte* end, std::uint32_t* ends, std::size_t max) const {
    return cut_(classes_, begin, end, ends, max);
  }

  const ClassTable& classes() const { return classes_; }

  // Calls use(piece) for every piece of a text.
  template <class Use>
  void each_piece(std::string_view text, Use&& use) const {
    std::uint32_t ends[kWindow];
    for (std::uint32_t start = 0; !text.empty(); text.remove_prefix(std::exchange(start, 0))) {
      const std::size_t n_pieces = cut(begin_of(text), end_of(text), ends, kWindow);
      for (std::size_t index = 0; index < n_pieces; start = ends[index++]) use(text.substr(start, ends[index] - start));
    }
  }

  using Cut = std::size_t (*)(const ClassTable&, const Byte* begin, const Byte* end, std::uint32_t* ends,
                              std::size_t max);

 private:
  static constexpr std::size_t kWindow = 1024;

  const ClassTable& classes_;
  Cut cut_;
};

inline constexpr std::array<std::string_view, 5> kPatterns = {"gpt2", "cl100k", "llama3", "qwen2", "o200k"};
// Scanner::cut by each of them, a character at a time: for machines without vector instructions, and where the block
// scanner isn't sure.
extern const Scanner::Cut kByPieces[5];

inline constexpr std::ptrdiff_t kFarthestEnd = ~std::uint32_t{0};

// Scanner::cut of the block scanner (blocks.hpp) for a pattern, by its index in kPatterns. Each is in a file that is
// compiled with the flags it needs.
Scanner::Cut block_scanner_neon(std::size_t pattern);
Scanner::Cut block_scanner_avx2(std::size_t pattern);
Scanner::Cut block_scanner_avx512(std::size_t pattern);

using Bits = std::uint64_t;  // of a block of 64 bytes, bit i for byte i

// The bytes of a block that belong to non-ASCII characters: those of each CasedClass, and those after a first byte.
struct HighBytes {
  Bits of_class[10] = {}, later = 0;
};

// `high` marks the bytes >= 0x80 of the block at `block`, where a character begins.
HighBytes classify_high(const ClassTable& classes, const Byte* block, const Byte* end, Bits high);

// The length of the contraction at `at`, or 0.
std::uint32_t contraction_at(const Byte* at, const Byte* end, bool any_case);

}  // namespace webtext
