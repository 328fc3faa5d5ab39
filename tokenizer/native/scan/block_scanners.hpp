// The block scanner (blocks.hpp) for each instruction set, and its parts that are compiled without special flags.
#pragma once

#include "scan/scanner.hpp"

namespace webtext {

// Scanner::cut for a pattern, by its index in kPatterns. Each is in a file that is compiled with the flags it needs.
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
