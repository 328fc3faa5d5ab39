// Merging pieces of up to 64 bytes, many at once. Vector instructions find the lowest rank, and pairs are looked up
// without a branch. This is most of the cost of encoding a first text.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "encode/merge_rules.hpp"
#include "scan/characters.hpp"

namespace webtext {

// A rule in a hash table. Its rank is found without a branch, which would be unpredictable.
template <class Id>
struct RuleSlot {  // tokens and ranks of 16 bits
  static constexpr std::uint32_t kMost = 0xFFFE;
  std::uint16_t right = 0, left = 0, rank = 0xFFFF;

  std::uint32_t rank_of(std::uint32_t other_left, std::uint32_t other_right) const {
    return rank | (0 - static_cast<std::uint32_t>(((left ^ other_left) | (right ^ other_right)) != 0));
  }
};

template <>
struct RuleSlot<std::uint32_t> {  // of 21 bits, in one word
  static constexpr std::uint32_t kMost = (1 << 21) - 2;
  std::uint64_t bits = ~std::uint64_t{0};

  RuleSlot() = default;
  RuleSlot(std::uint64_t right, std::uint64_t left, std::uint64_t rank) : bits(rank << 42 | left << 21 | right) {}
  std::uint32_t rank_of(std::uint64_t left, std::uint64_t right) const {
    const bool differs = (bits ^ (left << 21 | right)) << 22;
    return static_cast<std::uint32_t>(bits >> 42) | (0 - static_cast<std::uint32_t>(differs));
  }
};

inline constexpr std::size_t kShortPiece = 64;  // bytes
inline constexpr std::size_t kShortSlack = 4;   // tokens that may be written after the last: room for n_bytes + 4

// A piece of 1 to kShortPiece bytes, and the output for its tokens.
template <class Id>
struct ShortPiece {
  const Byte* bytes;
  const Byte* padded;  // the same if up to 15 bytes, with 16 readable ones; any value for a longer piece
  std::size_t n_bytes;
  Id* tokens;
  std::size_t n_tokens;
};

// The rules in a perfect hash table (hash and displace, Belazzougui et al. 2009). A look-up reads one slot, and the
// table for GPT-2 takes half a megabyte, so it stays in the second-level cache: with rules in a table of 1 MB, look-ups
// took 28 instead of 18 % of a first text's time. `Id` is uint16_t if tokens and ranks fit in it, else uint32_t.
template <class Id>
class ShortRules {
 public:
  using Slot = RuleSlot<Id>;
  static constexpr Id kNever = static_cast<Id>(~Id{0});

  // Sets `merge`, unless a token or a rank has too many bits or this machine has no such function.
  void assign(const MergeRules& rules, const std::array<std::uint32_t, 256>& byte_tokens);

  // Writes the tokens of n pieces, and sets their n_tokens; or null.
  void (*merge)(const ShortRules& rules, ShortPiece<Id>* pieces, std::size_t n) = nullptr;

  // A look-up is in two steps, so that the slot can be prefetched in between.
  const Slot* slot_of(std::uint64_t left, std::uint64_t right) const {
    const std::uint64_t pair = left << 32 | right;
    return &slots_[place(pair, seeds_[bucket(pair)])];
  }

  Id byte_rank(Byte left, Byte right) const { return byte_ranks_[left << 8 | right]; }
  Id byte_token(Byte byte) const { return byte_tokens_[byte]; }
  Id token(std::uint32_t rank) const {  // in trained vocabularies, tokens are in the order of ranks
    return is_dense_ ? static_cast<Id>(rank + first_token_) : token_of_rank_[rank];
  }

 private:
  std::uint64_t bucket(std::uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15u) >> (shift_ + 2); }
  std::uint64_t place(std::uint64_t pair, std::uint64_t seed) const {
    return (((pair ^ seed * 0x9E3779B97F4A7C15u) * 0x85EBCA6BC2B2AE35u) ^ (pair * 0xC2B2AE3D27D4EB4Fu)) >> shift_;
  }
  bool displace(const std::vector<std::pair<std::uint64_t, std::uint32_t>>& ranked_pairs);

  std::vector<Slot> slots_;
  std::vector<std::uint16_t> seeds_;  // by bucket; there is one bucket per four slots
  std::uint32_t shift_ = 56;
  std::vector<Id> byte_ranks_, token_of_rank_;
  std::array<Id, 256> byte_tokens_;
  bool is_dense_ = true;
  Id first_token_ = 0;
};

template <class Id>
void merge_short_avx2(const ShortRules<Id>& rules, ShortPiece<Id>* pieces, std::size_t n);

}  // namespace webtext
