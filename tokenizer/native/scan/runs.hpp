// Parts shared by the patterns: runs of characters, blanks, contractions. ASCII letters are read eight at a time, so
// that word lengths don't cause mispredicted branches.
#pragma once

#include <bit>
#include <cstring>

#include "scan/characters.hpp"

namespace webtext {

// Skips ASCII letters ('a' to 'z', and with `any_case` 'A' to 'Z'), eight bytes at a time. May stop early if fewer than
// eight bytes are left.
template <bool any_case>
inline const Byte* skip_ascii_letters(const Byte* at, const Byte* end) {
  if constexpr (std::endian::native == std::endian::little) {
    constexpr std::uint64_t kOnes = 0x0101010101010101u;
    while (end - at >= 8) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      const std::uint64_t low = (any_case ? word | kOnes * 0x20 : word) & kOnes * 0x7F;
      const std::uint64_t from_a = low + kOnes * (0x80 - 'a'), after_z = low + kOnes * (0x7F - 'z');
      const std::uint64_t stops = (~from_a | after_z | word) & kOnes * 0x80;
      if (stops) return at + std::countr_zero(stops) / 8;
      at += 8;
    }
  }
  return at;
}

// The end of a run of at most `max` characters of one class; any number of letters.
inline const Byte* run_end(const ClassTable& classes, CharClass kind, const Byte* at, const Byte* end,
                           std::ptrdiff_t max = PTRDIFF_MAX) {
  for (; max > 0 && at < end; --max) {
    if (kind == CharClass::kLetter && (at = skip_ascii_letters<true>(at, end)) == end) break;
    const Character character = character_at(classes, at, end);
    if (character.kind != kind) break;
    at += character.n_bytes;
  }
  return at;
}

// The end of a piece of white space, which begins at `begin`:
//   \s+(?!\S)|\s+                     all but the last character, which is left for the next piece
//   \s*[\r\n]+|\s+(?!\S)|\s+          up to the last line end if there is one (`ends_lines`)
//   \s++$|\s*[\r\n]|\s+(?!\S)|\s      the same, but white space at the end of the text is one piece (`joins_last`)
template <bool ends_lines, bool joins_last>
inline const Byte* blanks_end(const ClassTable& classes, const Byte* begin, const Byte* end) {
  const Byte *at = begin, *last = begin, *after_line = nullptr;
  while (at < end) {
    const Character character = character_at(classes, at, end);
    if (character.kind != CharClass::kSpace) break;
    last = at;
    at += character.n_bytes;
    if (ends_lines && (*last == '\n' || *last == '\r')) after_line = at;
  }
  if (at == end && joins_last) return at;
  if (after_line) return after_line;
  return at == end || last == begin ? at : last;
}

// The length of 's|'t|'re|'ve|'m|'ll|'d at `at`, or 0. With `any_case`, U+017F, the long s, matches s.
template <bool any_case>
inline int contraction(const Byte* at, const Byte* end) {
  if (end - at < 2 || *at != '\'') return 0;
  const auto lower = [](Byte byte) { return any_case ? byte | 0x20 : byte; };
  const int one = lower(at[1]);
  if (one == 's' || one == 't' || one == 'm' || one == 'd') return 2;
  if (end - at < 3) return 0;
  const int two = lower(at[2]);
  if ((two == 'e' && (one == 'r' || one == 'v')) || (one == 'l' && two == 'l')) return 3;
  return any_case && at[1] == 0xC5 && at[2] == 0xBF ? 3 : 0;
}

}  // namespace webtext
