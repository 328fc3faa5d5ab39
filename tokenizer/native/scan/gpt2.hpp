// Hand-written scanners for GPT-2's pattern:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// At each position the alternatives are tried in this order. No piece crosses a character class, except over one
// leading space. One scanner reads single characters; on x86-64 another reads 64 bytes at once (gpt2_blocks.hpp).
#pragma once

#include "scan/scanner.hpp"

namespace webtext {

// Returns the fastest Scanner::cut for the pattern "gpt2" on this machine.
Scanner::Cut gpt2_cut();

// The block scanner for each instruction set, in separate files that are compiled with its flags.
std::size_t cut_gpt2_avx512(const ClassTable&, const Byte* begin, const Byte* end, std::uint32_t* ends,
                            std::size_t max);
std::size_t cut_gpt2_avx2(const ClassTable&, const Byte* begin, const Byte* end, std::uint32_t* ends, std::size_t max);

// Functions of the block scanner that are compiled without special flags.

// The length of the contraction that the apostrophe at `begin` starts: 2 or 3, or 0 if it starts none.
int gpt2_contraction(const Byte* begin, const Byte* end);

// Classes of the bytes of a block that belong to non-ASCII characters, bit i for byte i.
struct HighBytes {
  std::uint64_t letter = 0, number = 0, space = 0;
  std::uint64_t space_ends_2 = 0, space_ends_3 = 0;  // last bytes of white space of two and of three bytes
  std::uint32_t n_over = 0;                          // bytes of the last character that are in the next block
  CharClass over = CharClass::kOther;                // its class
};

// `high` marks the bytes >= 0x80 of the block; its first n_skipped bytes belong to a character of the previous block.
HighBytes classify_high(const ClassTable& classes, const Byte* block, const Byte* end, std::uint64_t high,
                        std::uint32_t n_skipped);

// Whether the character at `at` (< end) is white space.
bool space_at(const ClassTable& classes, const Byte* at, const Byte* end);

// Cuts piece by piece from begin + first, where a piece begins. Stops when a piece ends at begin + beyond or later, at
// the end of the text, or after `max` ends. Returns the number of ends written.
std::size_t cut_gpt2_across(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t first,
                            std::uint32_t beyond, std::uint32_t* ends, std::size_t max);

}  // namespace webtext
