// Hashes the words of folded text, for shingles and n-grams.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace webtext::minhash {

static_assert(std::endian::native == std::endian::little, "words are hashed as little-endian 64-bit loads");

// Odd constants with well-spread bits: the golden ratio's, and the multipliers of SplitMix64 (Steele et al. 2014).
inline constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
inline constexpr uint64_t kMixFirst = 0xBF58476D1CE4E5B9u;
inline constexpr uint64_t kMixSecond = 0x94D049BB133111EBu;
inline constexpr uint64_t kBlanks = 0x2020202020202020u;

inline uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * kMixFirst;
  x = (x ^ x >> 27) * kMixSecond;
  return x ^ x >> 31;
}

inline uint64_t absorb(uint64_t hash, uint64_t eight_bytes) {
  hash = (hash ^ eight_bytes) * kMixFirst;
  return hash ^ hash >> 32;
}

// The lowest set bit of the result is the high bit of the first blank among eight bytes; 0 if there is no blank.
inline uint64_t find_blank(uint64_t eight_bytes) {
  const uint64_t zero_where_blank = eight_bytes ^ kBlanks;
  return (zero_where_blank - 0x0101010101010101u) & ~zero_where_blank & 0x8080808080808080u;
}

inline uint64_t load_word(const char* bytes, size_t available) {
  uint64_t value = kBlanks;
  std::memcpy(&value, bytes, std::min<size_t>(available, 8));
  return value;
}

// Hashes the word at `at` and advances `at` past it.
inline uint64_t hash_word(std::string_view words, size_t& at) {
  uint64_t hash = kGolden;
  for (;;) {
    uint64_t bytes;
    if (at + 8 <= words.size()) [[likely]] {
      std::memcpy(&bytes, words.data() + at, 8);
    } else {
      bytes = load_word(words.data() + at, words.size() - at);
    }
    const uint64_t blank = find_blank(bytes);
    if (blank == 0) {
      hash = absorb(hash, bytes);
      at += 8;
      continue;
    }
    const int length = std::countr_zero(blank) / 8;
    at += length;
    return length == 0 ? hash : absorb(hash, bytes & ((uint64_t{1} << 8 * length) - 1));
  }
}

}  // namespace webtext::minhash
