// All patterns, 64 bytes at a time: each class of characters is a bit mask with one bit per byte, and shifts and
// additions of these masks find where pieces begin (after simdjson, Langdale and Lemire 2019, arXiv:1902.08318).
//
// A block begins where a piece begins. No piece depends on what precedes it, so neither does a block, and the next one
// begins at the last start that was found. Starts that depend on what follows the block aren't found. If no start is
// found, or none before a place whose rule isn't expressed by masks (`unclear`), the scanner of single characters cuts
// some pieces.
//
// Included by one file per instruction set. Everything here is local to that file, so that no code with special
// instructions is shared with the rest of the program; the standard library's functions of bits would be.
#pragma once

#include <cstring>

#include "scan/scanner.hpp"

namespace webtext {
namespace {

constexpr std::ptrdiff_t kBlock = 64;      // bytes: the bits of a mask
constexpr std::size_t kUnclearPieces = 8;  // one at a time would make text full of such places five times slower

// How patterns differ.
struct Rules {
  std::uint32_t n_numbers;  // in a piece at most; 0 in GPT-2's pattern, see below
  bool joins_last = false;  // white space at the end of the text is one piece, even with line ends in it
  bool is_cased = false;    // lower case ends a word before upper case, and contractions belong to words

  // Only a blank joins what follows it: letters, numbers or others. In all other patterns, numbers are never joined,
  // letters are joined by any white space and any single other character, and line ends join others before them.
  constexpr bool is_gpt2() const { return n_numbers == 0; }
};
// In the order of kPatterns.
constexpr Rules kRules[] = {{.n_numbers = 0},
                            {.n_numbers = 3, .joins_last = true},
                            {.n_numbers = 3},
                            {.n_numbers = 1},
                            {.n_numbers = 3, .is_cased = true}};

Bits bit(std::uint32_t index) { return index < kBlock ? Bits{1} << index : 0; }
std::uint32_t first_of(Bits bits) { return bits ? static_cast<std::uint32_t>(__builtin_ctzll(bits)) : kBlock; }
std::uint32_t last_of(Bits bits) { return 63 - static_cast<std::uint32_t>(__builtin_clzll(bits)); }  // of any
Bits starts_of_runs(Bits bits) { return bits & ~(bits << 1); }

// The ends of pieces in the block at `at` (< end), where a piece begins: bit i if a piece ends before byte i.
// `Lanes(bytes)` are 64 bytes; equal(byte), between(first, n) and high() (not ASCII) mark some.
template <std::size_t pattern, class Lanes>
Bits ends_in_block(const ClassTable& classes, const Byte* at, const Byte* end) {
  constexpr Rules rules = kRules[pattern];
  const bool is_last = end - at < kBlock;
  const auto left = static_cast<std::uint32_t>(is_last ? end - at : kBlock);
  Byte padded[kBlock];
  if (is_last) {
    std::memset(padded, ' ', kBlock);
    std::memcpy(padded, at, left);
  }
  const Lanes lanes(is_last ? padded : at);
  const Bits blank = lanes.equal(' '), line_end = rules.is_gpt2() ? 0 : lanes.equal('\n') | lanes.equal('\r');
  Bits upper = lanes.between('A', 26), letter = upper | lanes.between('a', 26), number = lanes.between('0', 10),
       space = blank | lanes.between('\t', 5);
  Bits lower = letter & ~upper;
  Bits both = 0, mark = 0;  // letters without case and marks, which count as both cases; marks of these
  Bits later = 0;           // bytes of characters after their first
  if (const Bits high = lanes.high()) {
    const HighBytes found = classify_high(classes, at, end, high);
    const auto of = [&found](CasedClass cased) { return found.of_class[static_cast<Byte>(cased)]; };
    if (rules.is_cased) mark = of(CasedClass::kMark);
    upper |= of(CasedClass::kUpper);
    lower |= of(CasedClass::kLower);
    both = of(CasedClass::kUncased) | mark;
    letter |= upper | lower | both;
    number |= of(CasedClass::kNumber);
    space |= of(CasedClass::kSpace);
    later = found.later;
  }
  const Bits other = ~(letter | number | space), gap = space & ~line_end;
  const auto next = [later](Bits firsts) { return ((firsts << 1) + later) & ~later; };  // first bytes that follow them

  const Bits others = starts_of_runs(other) & ~(blank << 1);
  Bits starts = others, unclear = 0;
  if (rules.is_gpt2()) {
    starts |= (starts_of_runs(letter) | starts_of_runs(number)) & ~(blank << 1);
  } else {
    starts |= starts_of_runs(letter) & ~(gap << 1) & ~next(others);
    starts |= rules.n_numbers == 1 ? number & ~later : starts_of_runs(number);
    if (rules.n_numbers == 3 && (number & number << 1 & number << 2 & number << 3)) {
      for (Bits third = starts_of_runs(number); third; starts |= third) {
        third = next(next(next(third) & number) & number) & number;
      }
    }
  }
  if (rules.is_cased) {
    starts |= upper & lower << 1;
    unclear |= (upper & both << 1) | (mark & other << 1 & ~next(others));
  }

  // White space is a piece up to its last line end, and one up to its last character, which begins the next piece.
  const Bits joined = line_end & ~(line_end + (line_end & other << 1));  // to others: these line ends begin no piece
  const Bits blanks = starts_of_runs(space & ~joined), last = gap & ~(space >> 1) & ~bit(kBlock - 1);
  starts |= blanks | (last & ~later);
  unclear |= last & later & ~(next(blanks) >> 1);  // the last of several, and not one byte
  if (rules.is_cased) unclear |= lanes.equal('/') & joined << 1;
  const Bits tails = gap & (line_end & ~joined) << 1, after_tails = gap + tails;  // white space after a line end
  starts |= tails;
  for (Bits lines = after_tails & ~gap & line_end; lines; lines &= lines - 1) {  // it isn't the last line end
    starts &= ~bit(last_of(tails & ((lines & -lines) - 1)));
  }
  if (after_tails < gap && (!is_last || rules.joins_last)) starts &= ~bit(last_of(tails));  // the tail has no end

  Bits marks = lanes.equal('\'') & others & (letter >> 1 | bit(kBlock - 1));
  if (rules.is_cased) marks &= letter << 1;
  for (std::uint32_t contracted = 0; marks; marks &= marks - 1) {  // up to there
    const std::uint32_t index = first_of(marks), n_bytes = contraction_at(at + index, end, !rules.is_gpt2());
    if (n_bytes == 0 || (rules.is_cased && contracted == index)) continue;
    contracted = index + n_bytes;
    const Bits bytes = (bit(n_bytes) - 1) << index;
    starts &= ~(rules.is_cased ? bytes : bytes & (bytes - 1));
    starts |= bit(contracted);
  }

  if (is_last) starts |= bit(left);  // among the blanks after it, no other piece begins
  if (unclear) starts &= (unclear & -unclear) - 1;
  return starts & ~Bits{1};
}

// Scanner::cut. `Lanes::write_ends(bits, base, ends)` writes base + i for every bit i in ascending order, possibly
// followed by garbage (it needs room for 64), and returns their number.
template <std::size_t pattern, class Lanes>
std::size_t cut_by_blocks(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                          std::size_t max) {
  if (max <= kBlock) return kByPieces[pattern](classes, begin, end, ends, max);
  std::size_t n_ends = 0;
  for (const Byte* at = begin; at < end && max - n_ends > kBlock && at - begin <= kFarthestEnd - kBlock;) {
    const auto base = static_cast<std::uint32_t>(at - begin);
    if (const Bits found = ends_in_block<pattern, Lanes>(classes, at, end)) [[likely]] {
      n_ends += Lanes::write_ends(found, base, ends + n_ends);
      at += last_of(found);
    } else {
      for (std::size_t n = kByPieces[pattern](classes, at, end, ends + n_ends, kUnclearPieces); n > 0; --n) {
        if (ends[n_ends] > static_cast<std::uint64_t>(kFarthestEnd) - base) return n_ends;
        ends[n_ends++] += base;
      }
      at = begin + ends[n_ends - 1];
    }
  }
  return n_ends;
}

template <class Lanes>
Scanner::Cut block_scanner(std::size_t pattern) {
  constexpr Scanner::Cut scanners[] = {&cut_by_blocks<0, Lanes>, &cut_by_blocks<1, Lanes>, &cut_by_blocks<2, Lanes>,
                                       &cut_by_blocks<3, Lanes>, &cut_by_blocks<4, Lanes>};
  return scanners[pattern];
}

// Lanes::write_ends for instruction sets without a better way.
struct EndsByEight {
  static std::size_t write_ends(Bits bits, std::uint32_t base, std::uint32_t* ends) {
    const auto n_ends = static_cast<std::size_t>(__builtin_popcountll(bits));
    for (std::size_t written = 0; written < n_ends; written += 8) {  // the number is rarely predicted right
      for (std::size_t index = 0; index < 8; ++index, bits &= bits - 1) ends[written + index] = base + first_of(bits);
    }
    return n_ends;
  }
};

}  // namespace
}  // namespace webtext
