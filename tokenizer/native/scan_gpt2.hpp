// GPT-2's split of text into pieces, by hand instead of by regular expression:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// Alternatives are tried in this order at each place; no piece crosses a character class, except over one leading
// space. One scanner goes character by character; on x86-64 another looks at 64 bytes at once (scan_gpt2_blocks.hpp).
#pragma once

#include "scanner.hpp"

namespace webtext {

// Scanner::cut for the pattern "gpt2", as fast as this machine can.
Scanner::Cut gpt2_cut();

// One piece after the other.
class Gpt2Pieces {
 public:
  explicit Gpt2Pieces(const ClassTable& classes) : classes_(classes) {}

  // One past the last byte of the piece that starts at `begin` (< end).
  const Byte* operator()(const Byte* begin, const Byte* end) const;

  // The bytes of the contraction that the apostrophe at `begin` starts: 2, 3, or 0 where there is none.
  static int contraction(const Byte* begin, const Byte* end);

 private:
  const Byte* run_end(const Byte* at, const Byte* end, CharClass kind) const;
  const Byte* blank_end(const Byte* last, std::uint32_t n_bytes, const Byte* end) const;

  const ClassTable& classes_;
};

// The instruction sets that the block scanner is compiled for. Each lies in a file of its own, compiled with its flags.
std::size_t cut_gpt2_avx512(const ClassTable&, const Byte* begin, const Byte* end, std::uint32_t* ends,
                            std::size_t max);
std::size_t cut_gpt2_avx2(const ClassTable&, const Byte* begin, const Byte* end, std::uint32_t* ends, std::size_t max);

// What the block scanner leaves to code without special flags.

// Classes of the bytes of one block that are part of characters beyond ASCII, bit i for byte i.
struct HighBytes {
  std::uint64_t letter = 0, number = 0, space = 0;
  std::uint64_t space_ends_2 = 0, space_ends_3 = 0;  // last bytes of white space of two and of three bytes
  std::uint32_t n_over = 0;                          // bytes of the last character that lie in the next block
  CharClass over = CharClass::kOther;                // its class
};

// `high` tells the bytes >= 0x80 of the block at `block`, of which the first n_skipped belong to the block before.
HighBytes classify_high(const ClassTable& classes, const Byte* block, const Byte* end, std::uint64_t high,
                        std::uint32_t n_skipped);

// Whether white space is at `at` (< end).
bool space_at(const ClassTable& classes, const Byte* at, const Byte* end);

// Cuts piece by piece from begin + first, where a piece begins, until one ends at begin + beyond or later, or the text
// ends, or `max` ends are written; returns how many were.
std::size_t cut_gpt2_across(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t first,
                            std::uint32_t beyond, std::uint32_t* ends, std::size_t max);

}  // namespace webtext
