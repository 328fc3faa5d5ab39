// GPT-2's pattern, 64 bytes at a time: each class is a bit mask with one bit per byte, and shifts of these masks find
// the starts of pieces (after simdjson, Langdale and Lemire 2019, arXiv:1902.08318). Included by one file per
// instruction set. Everything here is local to that file, so that no code with special instructions is shared with the
// rest of the program.
//
// A byte begins a piece if one of these is true:
//   - it isn't white space, its class differs from the previous byte's, and the previous byte isn't ' ';
//   - it is white space and the previous byte isn't;
//   - it is the last white space before something else, because a run leaves its last one to the next piece;
//   - it follows a contraction. The letters of a contraction don't begin a piece.
// All bytes of a character have its class, so only the first can begin a piece. For white space of several bytes, the
// third rule applies to its first byte.
#pragma once

#include <cstring>

#include "scan/gpt2.hpp"

namespace webtext {
namespace {

constexpr std::uint32_t kBlock = 64;  // bytes: the bits of a mask

// Classes of the ASCII bytes of a block, bit i for byte i; `high` are the non-ASCII bytes.
struct BlockClasses {
  std::uint64_t letter, number, space, blank, apostrophe, high;
};

// The state that a block needs from the previous one. The first five are the class of its last byte.
struct Before {
  bool letter = false, number = false, other = false, space = false, blank = false;
  std::uint32_t n_over = 0;             // bytes at the block's start that belong to the previous block's last character
  CharClass over = CharClass::kOther;   // and that character's class
  std::uint64_t joined = 0, begun = 0;  // bytes after an apostrophe: those that don't begin a piece, those that do
};

// `Simd::classify(bytes)` returns the BlockClasses of 64 bytes. `Simd::write_ends(bits, base, ends)` writes base + i
// for every bit i in ascending order, possibly followed by garbage (it needs room for 64), and returns their number.
template <class Simd>
std::size_t cut_by_blocks(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                          std::size_t max) {
  const auto n_bytes = static_cast<std::size_t>(end - begin);
  std::size_t n_ends = 0;
  std::size_t at = 0, fresh = 0;  // this block; a block before which nothing is known
  Before before;
  while (at < n_bytes) {
    if (max - n_ends <= kBlock || at + kBlock > static_cast<std::size_t>(kFarthestEnd)) {
      if (n_ends > 0) return n_ends;
      return cut_gpt2_across(classes, begin, end, 0, static_cast<std::uint32_t>(kFarthestEnd), ends, max);
    }
    const Byte* block = begin + at;
    const std::size_t left = n_bytes - at;
    Byte padded[kBlock];
    std::uint64_t valid = ~std::uint64_t{0};
    if (left < kBlock) {
      std::memset(padded, 0, kBlock);
      std::memcpy(padded, block, left);
      valid >>= kBlock - left;
    }
    const BlockClasses ascii = Simd::classify(left < kBlock ? padded : block);
    std::uint64_t letter = ascii.letter, number = ascii.number, space = ascii.space;
    std::uint64_t space_ends_2 = 0, space_ends_3 = 0;
    std::uint32_t n_over = 0;
    CharClass over = CharClass::kOther;
    if (ascii.high) {
      const std::uint64_t tail = (std::uint64_t{1} << before.n_over) - 1;
      const HighBytes high = classify_high(classes, block, end, ascii.high, before.n_over);
      letter |= high.letter | (before.over == CharClass::kLetter ? tail : 0);
      number |= high.number | (before.over == CharClass::kNumber ? tail : 0);
      space |= high.space;
      space_ends_2 = high.space_ends_2;
      space_ends_3 = high.space_ends_3;
      n_over = high.n_over;
      over = high.over;
      if (over == CharClass::kSpace &&
          n_over) {  // white space across the block's edge: cut single pieces until after it
        const std::uint32_t last = n_ends ? ends[n_ends - 1] : 0;
        const std::size_t n_more = cut_gpt2_across(classes, begin, end, last, static_cast<std::uint32_t>(at + kBlock),
                                                   ends + n_ends, max - n_ends);
        n_ends += n_more;
        if (n_more == 0) return n_ends;  // the next piece ends beyond kFarthestEnd
        at = fresh = ends[n_ends - 1];
        before = Before{};
        if (at == n_bytes) return n_ends;
        continue;
      }
    }
    const std::uint64_t other = valid & ~(letter | number | space);
    const auto shifted = [](std::uint64_t bits, bool first) { return bits << 1 | static_cast<std::uint64_t>(first); };
    const std::uint64_t same = (letter & shifted(letter, before.letter)) | (number & shifted(number, before.number)) |
                               (other & shifted(other, before.other));
    std::uint64_t starts = valid & ~space & ~same & ~shifted(ascii.blank, before.blank);
    starts |= space & ~shifted(space, before.space);
    // A run of white space at the end of the text keeps its last character.
    const bool space_follows = left <= kBlock || (space >> 63 && space_at(classes, block + kBlock, end));
    std::uint64_t last = space & ~(space >> 1 | static_cast<std::uint64_t>(space_follows) << 63);
    if (left < kBlock) last &= valid >> 1;
    if (space_ends_2 | space_ends_3) {
      last = (last & ~(space_ends_2 | space_ends_3)) | (last & space_ends_2) >> 1 | (last & space_ends_3) >> 2;
    }
    starts |= last;

    std::uint64_t joined = 0, begun = 0;
    for (std::uint64_t marks = ascii.apostrophe & starts; marks; marks &= marks - 1) {
      const auto mark = static_cast<std::uint32_t>(__builtin_ctzll(marks));
      const auto length = static_cast<std::uint32_t>(gpt2_contraction(block + mark, end));
      if (!length) continue;
      if (mark + 1 < kBlock) {
        starts &= ~(std::uint64_t{1} << (mark + 1));
      } else {
        joined = 1;
      }
      if (mark + length < kBlock) {
        starts |= std::uint64_t{1} << (mark + length);
      } else {
        begun |= std::uint64_t{1} << (mark + length - kBlock);
      }
    }
    starts = ((starts & ~before.joined) | before.begun) & valid;
    if (at == fresh) starts &= ~std::uint64_t{1};  // already written, or the start of the text
    n_ends += Simd::write_ends(starts, static_cast<std::uint32_t>(at), ends + n_ends);
    before = {letter >> 63 != 0,
              number >> 63 != 0,
              other >> 63 != 0,
              space >> 63 != 0,
              ascii.blank >> 63 != 0,
              n_over,
              over,
              joined,
              begun};
    at += kBlock;
  }
  if (n_bytes > 0 && (n_ends == 0 || ends[n_ends - 1] != n_bytes)) ends[n_ends++] = static_cast<std::uint32_t>(n_bytes);
  return n_ends;
}

}  // namespace
}  // namespace webtext
