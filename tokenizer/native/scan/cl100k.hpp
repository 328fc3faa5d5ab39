//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
//
// This is Llama 3's pattern. Qwen 2's has \p{N} instead of \p{N}{1,3}. tiktoken's cl100k ends with
// \s++$|\s*[\r\n]|\s+(?!\S)|\s, so that white space at the end of a text is one piece, even with line ends in it.
#pragma once

#include "scan/runs.hpp"

namespace webtext {

template <int max_numbers, bool joins_last_blanks>
struct Cl100kPieces {
  const ClassTable& classes;

  // One past the last byte of the piece that starts at `begin` (< end).
  const Byte* operator()(const Byte* begin, const Byte* end) const {
    const Character first = character_at(classes, begin, end);
    const Byte* next = begin + first.n_bytes;
    if (first.kind == CharClass::kLetter) return run_end(classes, CharClass::kLetter, next, end);
    if (first.kind == CharClass::kNumber) return run_end(classes, first.kind, next, end, max_numbers - 1);
    if (const int n_bytes = contraction<true>(begin, end)) return begin + n_bytes;
    const bool is_line_end = *begin == '\n' || *begin == '\r';
    if (next < end && !is_line_end) {
      const Character second = character_at(classes, next, end);
      if (second.kind == CharClass::kLetter) return run_end(classes, CharClass::kLetter, next + second.n_bytes, end);
      if (*begin == ' ' && second.kind == CharClass::kOther) return signs_end(next + second.n_bytes, end);
    }
    return first.kind == CharClass::kOther ? signs_end(next, end)
                                           : blanks_end<true, joins_last_blanks>(classes, begin, end);
  }

 private:
  // [^\s\p{L}\p{N}]*[\r\n]*
  const Byte* signs_end(const Byte* at, const Byte* end) const {
    at = run_end(classes, CharClass::kOther, at, end);
    while (at < end && (*at == '\n' || *at == '\r')) ++at;
    return at;
  }
};

}  // namespace webtext
