// Positions where a long text can be cut into independent texts: blocks of a file, or shares for threads.
//
// A position is safe if every pattern with a scanner ends a piece there, and the pieces on each side don't depend on
// the other side:
//
//   (1) between a letter or number and white space: no piece of these patterns continues from one to the other, and
//       none looks back;
//   (2) after a "\n" between a character other than white space and a letter or number: the "\n" is a piece, or ends
//       the piece of the punctuation before it, and never begins a piece with a letter or number in it.
//
// (2) is for scripts that don't separate words by blanks. Only ASCII white space is searched for.
#pragma once

#include "scan/characters.hpp"

namespace webtext {

// The character that ends at `at` (> begin). Because UTF-8 can be read backwards, this is the character that reading
// from `begin` finds there, even among invalid bytes.
inline Character character_before(const ClassTable& classes, const Byte* begin, const Byte* at) {
  for (std::ptrdiff_t n_bytes = 1; n_bytes <= 4 && n_bytes <= at - begin; ++n_bytes) {
    const Byte first = at[-n_bytes];
    if ((first & 0xC0) == 0x80) continue;
    const Character character = character_at(classes, at - n_bytes, at);
    if (character.n_bytes == n_bytes) return character;
    break;
  }
  return {CharClass::kOther, 1};
}

// The first safe position at or after `at` in the text [begin, end), else `end`. Never `begin`.
inline const Byte* safe_cut(const ClassTable& classes, const Byte* begin, const Byte* at, const Byte* end) {
  const auto is_word = [](CharClass kind) { return kind == CharClass::kLetter || kind == CharClass::kNumber; };
  // Starts one byte early: a "\n" just before `at` can make `at` safe.
  for (const Byte* blank = at > begin ? at - 1 : at; blank < end; ++blank) {
    if (*blank != ' ' && (*blank < '\t' || *blank > '\r')) continue;
    if (blank == begin) continue;
    const CharClass before = character_before(classes, begin, blank).kind;
    if (blank >= at && is_word(before)) return blank;
    if (*blank == '\n' && before != CharClass::kSpace && blank + 1 < end &&
        is_word(character_at(classes, blank + 1, end).kind)) {
      return blank + 1;
    }
  }
  return end;
}

// The start of an incomplete character at the end of the text, else `end`.
inline const Byte* end_of_whole_characters(const Byte* begin, const Byte* end) {
  for (std::ptrdiff_t n_bytes = 1; n_bytes <= 3 && n_bytes <= end - begin; ++n_bytes) {
    const Byte first = end[-n_bytes];
    if ((first & 0xC0) == 0x80) continue;
    const bool is_cut =
        (first >= 0xF0 && n_bytes < 4) || (first >= 0xE0 && n_bytes < 3) || (first >= 0xC0 && n_bytes < 2);
    return is_cut ? end - n_bytes : end;
  }
  return end;
}

// The last safe position of [at, end) in the text [begin, end), searched for further and further back, else `begin`.
// The text may continue after `end`, which may be inside a character; positions before `at` are known not to be safe.
inline const Byte* last_safe_cut(const ClassTable& classes, const Byte* begin, const Byte* at, const Byte* end) {
  end = std::max(at, end_of_whole_characters(at, end));
  for (std::ptrdiff_t reach = 1 << 8;; reach *= 4) {
    const Byte* from = reach < end - at ? end - reach : at;
    const Byte* cut = safe_cut(classes, begin, from, end);
    if (cut == end && from > at) continue;
    for (const Byte* next = cut; next < end; next = safe_cut(classes, begin, cut + 1, end)) cut = next;
    return cut < end ? cut : begin;
  }
}

}  // namespace webtext
