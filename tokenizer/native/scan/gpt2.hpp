//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include "scan/runs.hpp"

namespace webtext {

struct Gpt2Pieces {
  const ClassTable& classes;

  // One past the last byte of the piece that starts at `begin` (< end).
  const Byte* operator()(const Byte* begin, const Byte* end) const {
    if (const int n_bytes = contraction<false>(begin, end)) return begin + n_bytes;
    const Character first = character_at(classes, begin, end);
    const Byte* next = begin + first.n_bytes;
    if (first.kind != CharClass::kSpace) return run_end(classes, first.kind, next, end);
    if (next == end) return end;
    const Character second = character_at(classes, next, end);
    if (second.kind == CharClass::kSpace) return blanks_end<false, false>(classes, begin, end);
    return *begin == ' ' ? run_end(classes, second.kind, next + second.n_bytes, end) : next;
  }
};

}  // namespace webtext
