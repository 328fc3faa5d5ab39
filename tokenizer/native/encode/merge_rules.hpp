// The merge rules: from a pair of tokens to the rank of their merge and the new token.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/hashing.hpp"

namespace webtext {

// The two tokens of a merge.
using Merge = std::pair<std::uint32_t, std::uint32_t>;

struct Rule {
  static constexpr std::uint32_t kNever = ~0u;
  std::uint32_t rank = kNever, token = kNever;
};

class MergeRules {
 public:
  void add(std::uint32_t left, std::uint32_t right, Rule rule) {
    if (2 * (n_rules_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[find(key(left, right))];
    if (slot.rule.rank == Rule::kNever) ++n_rules_;
    slot = {key(left, right), rule};
    mark(slot.pair);
    if (rule.rank >= token_of_rank_.size()) token_of_rank_.resize(rule.rank + 1, Rule::kNever);
    token_of_rank_[rule.rank] = rule.token;
  }

  // Must be called once, after the last rule. Copies the ranks of pairs of bytes to a separate table, because every
  // piece starts with them.
  void finish(const std::array<std::uint32_t, 256>& byte_tokens) {
    byte_ranks_.resize(1 << 16);
    for (std::uint32_t left = 0; left < 256; ++left) {
      for (std::uint32_t right = 0; right < 256; ++right) {
        byte_ranks_[left << 8 | right] = rank(byte_tokens[left], byte_tokens[right]);
      }
    }
  }

  // Most pairs have no rule. A filter with one bit per hash, small enough for the second-level cache, detects them
  // without accessing the table: texts in many scripts encode a fifth faster.
  Rule operator()(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t pair = key(left, right), hash = kTableHash.mix(pair, 0);
    if (!(filter_[(hash >> 32 & filter_mask_) >> 6] >> (hash >> 32 & 63) & 1)) return {};
    return slots_[find(pair)].rule;
  }

  std::uint32_t rank(std::uint32_t left, std::uint32_t right) const { return (*this)(left, right).rank; }
  std::uint32_t byte_rank(std::uint8_t left, std::uint8_t right) const { return byte_ranks_[left << 8 | right]; }
  std::uint32_t token(std::uint32_t rank) const { return token_of_rank_[rank]; }
  std::size_t n_ranks() const { return token_of_rank_.size(); }
  std::size_t size() const { return n_rules_; }

  // Calls use(left, right, rule) for every rule.
  template <class Use>
  void each(const Use& use) const {
    for (const Slot& slot : slots_) {
      if (slot.rule.rank == Rule::kNever) continue;
      use(static_cast<std::uint32_t>(slot.pair >> 32), static_cast<std::uint32_t>(slot.pair), slot.rule);
    }
  }

 private:
  static constexpr std::size_t kSlots = 1 << 10, kFilterBits = 8;  // initial slots; filter bits per slot

  struct Slot {
    std::uint64_t pair = 0;
    Rule rule;
  };

  static std::uint64_t key(std::uint32_t left, std::uint32_t right) {
    return static_cast<std::uint64_t>(left) << 32 | right;
  }

  std::size_t find(std::uint64_t pair) const {
    return probe(kTableHash.mix(pair, 0), slots_.size(),
                 [&](std::size_t at) { return slots_[at].rule.rank == Rule::kNever || slots_[at].pair == pair; });
  }

  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    filter_.assign(slots_.size() * kFilterBits / 64, 0);
    filter_mask_ = slots_.size() * kFilterBits - 1;
    for (const Slot& slot : old) {
      if (slot.rule.rank == Rule::kNever) continue;
      slots_[find(slot.pair)] = slot;
      mark(slot.pair);
    }
  }

  void mark(std::uint64_t pair) {
    const std::uint64_t hash = kTableHash.mix(pair, 0) >> 32;
    filter_[(hash & filter_mask_) >> 6] |= std::uint64_t{1} << (hash & 63);
  }

  std::vector<std::uint64_t> filter_ = std::vector<std::uint64_t>(kSlots * kFilterBits / 64);
  std::uint64_t filter_mask_ = kSlots * kFilterBits - 1;
  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
  std::size_t n_rules_ = 0;
  std::vector<std::uint32_t> token_of_rank_;
  std::vector<std::uint32_t> byte_ranks_;
};

}  // namespace webtext
