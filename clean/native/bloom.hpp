// A Bloom filter over 64-bit hashes, in memory that the caller owns and that several processes may fill at once.
// The readable twin is `Bloom` of clean/decontaminate/reference.py.
#pragma once

#include <cstdint>
#include <span>

namespace webtext::bloom {

// Sets the bits of each hash: `probes` bits, which SplitMix64 draws from the hash.
void add(std::span<uint64_t> bits, std::span<const uint64_t> hashes, uint32_t probes);
// Answers 1 for each hash whose bits are all set, else 0.
void has(std::span<const uint64_t> bits, std::span<const uint64_t> hashes, uint32_t probes, std::span<uint8_t> answers);

}  // namespace webtext::bloom
