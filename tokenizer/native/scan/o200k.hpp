//   [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// A word is upper case followed by lower case. Letters without case and marks count as both. A mark can also be the
// optional character before a word, which is tried first.
#pragma once

#include "scan/runs.hpp"

namespace webtext {

struct O200kPieces {
  const ClassTable& classes;

  // One past the last byte of the piece that starts at `begin` (< end).
  const Byte* operator()(const Byte* begin, const Byte* end) const {
    const CodePoint point = code_at(begin, end);
    const CasedClass first = classes.cased(point.code);
    const Byte* next = begin + point.n_bytes;
    if (is_letter(first)) return with_contraction(word_end(begin, end).at, end);
    if (first == CasedClass::kNumber) return run_end(classes, CharClass::kNumber, next, end, 2);
    const bool is_line_end = *begin == '\n' || *begin == '\r';
    if (!is_line_end) {
      const Word word = word_end(next, end);
      // Upper case only is the second alternative; before it, the first is tried with the mark as the word.
      if (first == CasedClass::kMark && (word.at == next || word.is_upper)) return with_contraction(next, end);
      if (word.at > next) return with_contraction(word.at, end);
      if (*begin == ' ') {
        const Byte* after = run_end(classes, CharClass::kOther, next, end);
        if (after > next) return line_ends_and_slashes(after, end);
      }
    }
    if (first == CasedClass::kSpace) return blanks_end<true, false>(classes, begin, end);
    return line_ends_and_slashes(run_end(classes, CharClass::kOther, next, end), end);
  }

 private:
  struct Word {
    const Byte* at;  // its end; the start of the search if there is no word
    bool is_upper;   // upper case only: no letter without case and no mark
  };

  static bool is_letter(CasedClass cased) {
    return (static_cast<Byte>(cased) & 3) == static_cast<Byte>(CharClass::kLetter);
  }
  static bool is_lower_or_both(CasedClass cased) {
    return cased == CasedClass::kLower || cased == CasedClass::kUncased || cased == CasedClass::kMark;
  }

  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+, else [\p{Lu}\p{Lt}]*
  Word word_end(const Byte* at, const Byte* end) const {
    const Byte* after_both = nullptr;  // end of the last character that counts as both cases
    while (at < end) {
      const CodePoint point = code_at(at, end);
      const CasedClass cased = classes.cased(point.code);
      if (cased == CasedClass::kLower) return {lower_end(at + point.n_bytes, end), false};
      if (cased != CasedClass::kUpper && cased != CasedClass::kUncased && cased != CasedClass::kMark) break;
      at += point.n_bytes;
      if (cased != CasedClass::kUpper) after_both = at;
    }
    if (after_both) return {after_both, false};
    return {at, true};
  }

  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]*
  const Byte* lower_end(const Byte* at, const Byte* end) const {
    while (at < end) {
      at = skip_ascii_letters<false>(at, end);
      if (at == end) break;
      const CodePoint point = code_at(at, end);
      if (!is_lower_or_both(classes.cased(point.code))) break;
      at += point.n_bytes;
    }
    return at;
  }

  static const Byte* with_contraction(const Byte* at, const Byte* end) { return at + contraction<true>(at, end); }

  static const Byte* line_ends_and_slashes(const Byte* at, const Byte* end) {
    while (at < end && (*at == '\n' || *at == '\r' || *at == '/')) ++at;
    return at;
  }
};

}  // namespace webtext
