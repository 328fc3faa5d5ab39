// Fast hashes of short byte strings and of pairs of numbers, each with two keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

namespace webtext {

// Loads up to 8 bytes as one little-endian number, without reading past the last byte.
inline std::uint64_t load_short(const std::uint8_t* at, std::size_t n_bytes) {
  if (n_bytes >= 4) {  // two overlapping loads instead of a loop
    std::uint32_t first, last;
    std::memcpy(&first, at, 4);
    std::memcpy(&last, at + n_bytes - 4, 4);
    return first | static_cast<std::uint64_t>(last) << (8 * (n_bytes - 4));
  }
  std::uint64_t word = 0;
  for (std::size_t index = 0; index < n_bytes; ++index) word |= static_cast<std::uint64_t>(at[index]) << (8 * index);
  return word;
}

// Multiplies to 128 bits and folds the halves. Both factors have a key: if an input could make one factor 0, the hash
// wouldn't depend on the other one.
struct Hash {
  std::uint64_t left_key, right_key;

  std::uint64_t mix(std::uint64_t left, std::uint64_t right) const {
    const auto product = static_cast<unsigned __int128>(left ^ left_key) * (right ^ right_key);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }

  std::uint64_t bytes(const std::uint8_t* at, std::size_t n_bytes) const {
    std::uint64_t hash = n_bytes;
    for (; n_bytes > 8; at += 8, n_bytes -= 8) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      hash = mix(hash, word);
    }
    return mix(hash, load_short(at, n_bytes));
  }
};

// Linear probing: returns the first slot, from the hash's own on, for which stop(slot) is true. `n_slots` is a power of
// two, and some slot stops.
template <class Stop>
std::size_t probe(std::uint64_t hash, std::size_t n_slots, const Stop& stop) {
  std::size_t at = hash & (n_slots - 1);
  while (!stop(at)) at = (at + 1) & (n_slots - 1);
  return at;
}

// For tables in memory. The keys are secret and differ between processes, so nobody can construct a text or a file that
// collides in a table. No result may depend on them or on the order of such a table.
inline const Hash kTableHash = [] {
  std::random_device random;
  const auto key = [&] { return std::uint64_t{random()} << 32 | random(); };
  return Hash{key(), key()};
}();

}  // namespace webtext
