// Merging pieces of up to 64 bytes if tokens and ranks fit in 16 bits. Vector instructions find the lowest rank, and
// pairs are looked up without a branch. This is most of the cost of encoding a first text.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "encode/merge_rules.hpp"
#include "scan/characters.hpp"

namespace webtext {

// The rules of a narrow vocabulary in a perfect hash table (hash and displace, Belazzougui et al. 2009). A look-up
// reads one slot, and the table for GPT-2 takes half a megabyte, so it stays in the second-level cache: with rules in a
// table of 1 MB, look-ups took 28 instead of 18 % of a first text's time.
class NarrowRules {
 public:
  static constexpr std::uint16_t kNever = 0xFFFF;

  // Returns false if the rules don't fit: a token or a rank has more than 16 bits.
  bool assign(const MergeRules& rules, const std::array<std::uint32_t, 256>& byte_tokens);

  // A look-up in two steps, so that the slot can be prefetched in between.
  struct Slot {
    std::uint16_t right = 0, left = 0, rank = kNever;
  };
  const Slot* slot_of(std::uint32_t left, std::uint32_t right) const {
    const std::uint32_t pair = left << 16 | right;
    return &slots_[place(pair, seeds_[bucket(pair)])];
  }
  static std::uint32_t rank_at(const Slot* slot, std::uint32_t left, std::uint32_t right) {
    // Without a branch, which would be unpredictable.
    const std::uint32_t differs = (slot->left ^ left) | (slot->right ^ right);
    return slot->rank | (0 - static_cast<std::uint32_t>(differs != 0));
  }

  std::uint16_t byte_rank(Byte left, Byte right) const { return byte_ranks_[left << 8 | right]; }
  std::uint16_t byte_token(Byte byte) const { return byte_tokens_[byte]; }
  std::uint16_t token(std::uint16_t rank) const {  // in trained vocabularies, tokens are in the order of ranks
    return is_dense_ ? static_cast<std::uint16_t>(rank + first_token_) : token_of_rank_[rank];
  }

 private:
  std::uint32_t bucket(std::uint32_t pair) const { return (pair * 0x9E3779B1u) >> (shift_ + 2); }
  std::uint32_t place(std::uint32_t pair, std::uint32_t seed) const {
    return (((pair ^ seed * 0x9E3779B1u) * 0x85EBCA6Bu) ^ (pair * 0xC2B2AE35u)) >> shift_;
  }
  bool displace(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& ranked_pairs);

  std::vector<Slot> slots_;
  std::vector<std::uint16_t> seeds_;  // by bucket; there is one bucket per four slots
  std::uint32_t shift_ = 24;
  std::vector<std::uint16_t> byte_ranks_, token_of_rank_;
  std::array<std::uint16_t, 256> byte_tokens_;
  bool is_dense_ = true;
  std::uint16_t first_token_ = 0;
};

inline constexpr std::size_t kShortPiece = 64;  // bytes

// A piece of 1 to kShortPiece bytes, and the output for its tokens.
struct ShortPiece {
  static constexpr std::size_t kSlack = 4;  // tokens that may be written after the last: room is n_bytes + kSlack

  const Byte* bytes;
  const Byte* padded;  // the same if up to 15 bytes, with 16 readable ones; any value for a longer piece
  std::size_t n_bytes;
  std::uint16_t* tokens;
  std::size_t n_tokens;
};

// Writes the tokens of n pieces, and sets their n_tokens.
using MergeShort = void (*)(const NarrowRules& rules, ShortPiece* pieces, std::size_t n);

void merge_short_avx2(const NarrowRules& rules, ShortPiece* pieces, std::size_t n);

// Returns the function for this machine, or null.
MergeShort merge_short();

}  // namespace webtext
