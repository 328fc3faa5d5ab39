// Characters of UTF-8 text and their class: letter, number, white space, or anything else.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "unicode_tables.hpp"

namespace webtext {

using Byte = std::uint8_t;

enum class CharClass : Byte { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

struct Character {
  CharClass kind;
  std::uint32_t n_bytes;
};

// Class of every code point: blocks of 128 code points, equal blocks stored once.
class ClassTable {
 public:
  static const ClassTable& instance() {
    static const ClassTable table;
    return table;
  }

  CharClass ascii(Byte byte) const { return blocks_[0][byte]; }
  CharClass operator[](std::uint32_t code) const { return blocks_[block_of_[code >> kShift]][code & (kBlock - 1)]; }

 private:
  static constexpr std::uint32_t kCodes = 0x110000, kShift = 7, kBlock = 1u << kShift;

  ClassTable() : block_of_(kCodes >> kShift) {
    std::vector<CharClass> all(kCodes, CharClass::kOther);
    for (auto [first, last] : kLetterRanges) std::fill(&all[first], &all[last] + 1, CharClass::kLetter);
    for (auto [first, last] : kNumberRanges) std::fill(&all[first], &all[last] + 1, CharClass::kNumber);
    for (auto [first, last] : kSpaceRanges) std::fill(&all[first], &all[last] + 1, CharClass::kSpace);
    for (std::uint32_t index = 0; index < block_of_.size(); ++index) {
      std::array<CharClass, kBlock> block;
      std::copy_n(&all[index * kBlock], kBlock, block.begin());
      auto known = std::find(blocks_.begin(), blocks_.end(), block);
      block_of_[index] = static_cast<Byte>(known - blocks_.begin());  // 111 different blocks in Unicode 16
      if (known == blocks_.end()) blocks_.push_back(block);
    }
  }

  std::vector<Byte> block_of_;
  std::vector<std::array<CharClass, kBlock>> blocks_;
};

// The character at `at` (< end). A byte that starts no valid UTF-8 sequence is one character of class kOther, so any
// bytes can be encoded; surrogates and overlong forms count as invalid, as in Python's decoder.
inline Character character_at(const ClassTable& classes, const Byte* at, const Byte* end) {
  const Byte first = *at;
  if (first < 0x80) return {classes.ascii(first), 1};
  const auto tail = [&](std::ptrdiff_t index) { return static_cast<std::uint32_t>(at[index] & 0x3F); };
  const auto continues = [&](std::ptrdiff_t n) {
    if (end - at <= n) return false;
    for (std::ptrdiff_t index = 1; index <= n; ++index) {
      if ((at[index] & 0xC0) != 0x80) return false;
    }
    return true;
  };
  if (first >= 0xC2 && first < 0xE0 && continues(1)) return {classes[(first & 0x1Fu) << 6 | tail(1)], 2};
  if (first >= 0xE0 && first < 0xF0 && continues(2)) {
    const std::uint32_t code = (first & 0x0Fu) << 12 | tail(1) << 6 | tail(2);
    if (code >= 0x800 && (code < 0xD800 || code >= 0xE000)) return {classes[code], 3};
  }
  if (first >= 0xF0 && first < 0xF5 && continues(3)) {
    const std::uint32_t code = (first & 0x07u) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
    if (code >= 0x10000 && code < 0x110000) return {classes[code], 4};
  }
  return {CharClass::kOther, 1};
}

}  // namespace webtext
