// A fast hash of short byte strings, for tables in memory only (never stored).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace webtext {

inline std::uint64_t mix(std::uint64_t left, std::uint64_t right) {
  const auto product = static_cast<unsigned __int128>(left ^ 0x9E3779B97F4A7C15u) * (right ^ 0xD6E8FEB86659FD93u);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Up to 8 bytes as one little number, without reading past the last byte.
inline std::uint64_t load_short(const std::uint8_t* at, std::size_t n_bytes) {
  if (n_bytes >= 4) {  // two loads that overlap, instead of a loop
    std::uint32_t first, last;
    std::memcpy(&first, at, 4);
    std::memcpy(&last, at + n_bytes - 4, 4);
    return first | static_cast<std::uint64_t>(last) << (8 * (n_bytes - 4));
  }
  std::uint64_t word = 0;
  for (std::size_t index = 0; index < n_bytes; ++index) word |= static_cast<std::uint64_t>(at[index]) << (8 * index);
  return word;
}

inline std::uint64_t hash_bytes(const std::uint8_t* at, std::size_t n_bytes) {
  std::uint64_t hash = n_bytes;
  for (; n_bytes > 8; at += 8, n_bytes -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash, word);
  }
  return mix(hash, load_short(at, n_bytes));
}

}  // namespace webtext
