// Cutting text into pieces before any merge, by a named pattern and the character classes of one Unicode version.
#pragma once

#include <array>
#include <stdexcept>
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

// Scanner::cut a character at a time: for machines without vector instructions, and where the block scanner isn't sure.
// Llama 3's and Qwen 2's patterns are variants of cl100k.
std::size_t cut_gpt2(const ClassTable&, const Byte* begin, const Byte* end, std::uint32_t* ends, std::size_t max);
std::size_t cut_cl100k(const ClassTable&, const Byte* begin, const Byte* end, std::uint32_t* ends, std::size_t max);
std::size_t cut_llama3(const ClassTable&, const Byte* begin, const Byte* end, std::uint32_t* ends, std::size_t max);
std::size_t cut_qwen2(const ClassTable&, const Byte* begin, const Byte* end, std::uint32_t* ends, std::size_t max);
std::size_t cut_o200k(const ClassTable&, const Byte* begin, const Byte* end, std::uint32_t* ends, std::size_t max);

inline constexpr std::array<std::string_view, 5> kPatterns = {"gpt2", "cl100k", "llama3", "qwen2", "o200k"};
inline constexpr Scanner::Cut kByPieces[] = {&cut_gpt2, &cut_cl100k, &cut_llama3, &cut_qwen2, &cut_o200k};

inline constexpr std::ptrdiff_t kFarthestEnd = ~std::uint32_t{0};

// Scanner::cut piece by piece: `piece_end(begin, end)` returns one past the last byte of the piece at `begin`.
template <class PieceEnd>
std::size_t cut_by_pieces(const PieceEnd& piece_end, const Byte* begin, const Byte* end, std::uint32_t* ends,
                          std::size_t max) {
  std::size_t n_pieces = 0;
  for (const Byte* at = begin; at < end && n_pieces < max;) {
    at = piece_end(at, end);
    if (at - begin > kFarthestEnd) {
      if (n_pieces == 0) throw std::length_error("a piece of 4 GiB or more");
      break;
    }
    ends[n_pieces++] = static_cast<std::uint32_t>(at - begin);
  }
  return n_pieces;
}

}  // namespace webtext
