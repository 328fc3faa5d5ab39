// A Bloom filter over 64-bit hashes, in memory that the caller owns. It can be filled in pieces.
// The readable twin is `Bloom` of tests/reference/ngrams.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "words/words.hpp"

namespace webtext::bloom {

inline constexpr size_t kAhead = 8;  // hashes whose bits are prefetched together: the bits are far apart in memory

class Probes {
 public:
  Probes(uint64_t hash, uint64_t n_bits) : state_(hash), n_bits_(n_bits) {}
  uint64_t next() {
    state_ += minhash::kGolden;
    return static_cast<uint64_t>(static_cast<unsigned __int128>(minhash::mix(state_)) * n_bits_ >> 64);
  }

 private:
  uint64_t state_, n_bits_;
};

// Calls visit(i) for each hash after prefetching the words of its bits. `bits` begins at word `first` of the filter.
template <typename Word, typename Visit>
void each(std::span<Word> bits, uint64_t first, uint64_t n_bits, std::span<const uint64_t> hashes, uint32_t probes,
          Visit visit) {
  for (size_t start = 0; start < hashes.size(); start += kAhead) {
    const size_t end = std::min(start + kAhead, hashes.size());
    for (size_t i = start; i < end; ++i) {
      Probes probe(hashes[i], n_bits);
      for (uint32_t n = 0; n < probes; ++n) {
        const uint64_t word = probe.next() / 64 - first;  // wraps around before the first
        if (word < bits.size()) __builtin_prefetch(&bits[word]);
      }
    }
    for (size_t i = start; i < end; ++i) visit(i);
  }
}

// Sets the bits of each hash, `probes` bits that SplitMix64 draws from it, in the words `first` ... of a filter.
inline void add(std::span<uint64_t> bits, uint64_t first, uint64_t n_bits, std::span<const uint64_t> hashes,
                uint32_t probes) {
  each(bits, first, n_bits, hashes, probes, [&](size_t i) {
    Probes probe(hashes[i], n_bits);
    for (uint32_t n = 0; n < probes; ++n) {
      const uint64_t bit = probe.next(), word = bit / 64 - first;
      if (word < bits.size()) bits[word] |= uint64_t{1} << bit % 64;
    }
  });
}

// Answers 1 for each hash whose bits are all set, else 0.
inline void has(std::span<const uint64_t> bits, std::span<const uint64_t> hashes, uint32_t probes,
                std::span<uint8_t> answers) {
  each(bits, 0, bits.size() * 64, hashes, probes, [&](size_t i) {
    Probes probe(hashes[i], bits.size() * 64);
    bool all = true;
    for (uint32_t n = 0; all && n < probes; ++n) {
      const uint64_t bit = probe.next();
      all = bits[bit / 64] >> bit % 64 & 1;
    }
    answers[i] = all;
  });
}

}  // namespace webtext::bloom
