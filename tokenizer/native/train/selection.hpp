// Chooses the pieces to load when memory has no room for all: those with a frequent pair.
//
// If every piece with a pair that occurs T times or more is in memory, all merges of such pairs can be made there: a
// merge changes only pieces that contain it, and the pairs that it creates occur in these pieces only. Pieces without
// such a pair don't change. So training loads pieces for a threshold T, merges until no pair occurs T times, writes the
// pieces back and continues with a lower T.
//
// To find T, counts of pairs are summed by hash, in a table of a fixed size. A sum is at least the count of each of its
// pairs, so what is loaded may be too much but never too little.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/hashing.hpp"
#include "base/huge_array.hpp"
#include "train/trainer.hpp"

namespace webtext {

using Word = std::vector<std::uint32_t>;  // a piece as tokens
using UseWord = std::function<void(const Word& word, std::int64_t count)>;
using EachWord = std::function<void(const UseWord& use)>;

inline bool may_merge(const TokenTable& tokens, const Goal& goal, std::uint32_t left, std::uint32_t right) {
  const std::size_t n_bytes = std::size_t{tokens.n_bytes(left)} + tokens.n_bytes(right);
  return n_bytes <= 2 || n_bytes < goal.max_token_length;
}

class Selection {
 public:
  // Selects all pieces.
  Selection() = default;

  // Selects the pieces for a threshold below `below`: as many as `max_memory` bytes suffice for, but at least those of
  // the highest threshold.
  Selection(const EachWord& each_word, std::size_t max_memory, std::int64_t below, const TokenTable& tokens,
            const Goal& goal)
      : sums_(std::bit_floor(std::max<std::size_t>(max_memory / 16, 1 << 10))) {
    std::size_t n_pairs = 0;
    each_word([&](const Word& word, std::int64_t count) {
      for (std::size_t at = 0; at + 1 < word.size(); ++at) {
        if (!may_merge(tokens, goal, word[at], word[at + 1])) continue;
        std::int64_t& sum = sums_[slot(word[at], word[at + 1])];
        n_pairs += sum == 0;
        sum += count;
      }
    });
    std::vector<std::size_t> bytes(kBins), places(kBins);
    each_word([&](const Word& word, std::int64_t) {
      const std::size_t bin = bin_of(highest_sum(word));
      for (const std::uint32_t token : word) bytes[bin] += tokens.n_bytes(token);
      places[bin] += word.size() - 1;
    });
    const std::size_t highest = bin_of(std::max<std::int64_t>(below - 1, 1));
    std::size_t all_bytes = 0, all_places = 0;
    for (std::size_t bin = kBins - 1; bin > 0; --bin) {
      all_bytes += bytes[bin];
      all_places += places[bin];
      if (bin < highest && all_places > places[bin] && memory_for(all_bytes, all_places, n_pairs) > max_memory) break;
      if (bin <= highest) threshold_ = least_in(bin);
    }
  }

  // The memory of pieces while they are merged, at first.
  static std::size_t memory_for(std::size_t n_bytes, std::size_t n_places, std::size_t n_pairs) {
    return 4 * (n_bytes + n_places) + 32 * std::min(n_places, n_pairs);
  }

  // All pairs that occur this often are in selected pieces only.
  std::int64_t threshold() const { return threshold_; }
  bool operator()(const Word& word) const { return sums_.size() == 0 || highest_sum(word) >= threshold_; }

 private:
  // Sums are put in bins by their nine highest bits, so those in one bin differ by less than half a percent.
  static constexpr int kBits = 9;
  static constexpr std::size_t kHalf = std::size_t{1} << (kBits - 1), kBins = kHalf * (65 - kBits);
  static std::size_t bin_of(std::int64_t sum) {
    const int shift = std::max(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(sum))) - kBits, 0);
    return kHalf * static_cast<std::size_t>(shift) + static_cast<std::size_t>(sum >> shift);
  }
  static std::int64_t least_in(std::size_t bin) {
    if (bin < 2 * kHalf) return static_cast<std::int64_t>(bin);
    return static_cast<std::int64_t>(bin % kHalf + kHalf) << (bin / kHalf - 1);
  }

  std::size_t slot(std::uint32_t left, std::uint32_t right) const {
    return kTableHash.mix(static_cast<std::uint64_t>(left) << 32 | right, 0) & (sums_.size() - 1);
  }

  std::int64_t highest_sum(const Word& word) const {
    std::int64_t highest = 0;
    for (std::size_t at = 0; at + 1 < word.size(); ++at)
      highest = std::max(highest, sums_[slot(word[at], word[at + 1])]);
    return highest;
  }

  HugeArray<std::int64_t> sums_;
  std::int64_t threshold_ = 1;
};

}  // namespace webtext
