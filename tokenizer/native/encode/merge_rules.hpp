// The merge rules: from a pair of tokens to the rank of their merge and the new token.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hashing.hpp"
#include "scan/characters.hpp"

namespace webtext {

// The two tokens of a merge.
using Merge = std::pair<std::uint32_t, std::uint32_t>;

struct Rule {
  static constexpr std::uint32_t kNever = ~0u;
  std::uint32_t rank = kNever, token = kNever;
};

class MergeRules {
 public:
  // Ranks are below `n_ranks`.
  explicit MergeRules(std::size_t n_ranks) : token_of_rank_(n_ranks, Rule::kNever) {}

  // `token` has these bytes. The ranks of pairs of bytes have a table of their own, because every piece starts with
  // them.
  void add(std::uint32_t left, std::uint32_t right, Rule rule, std::string_view token) {
    if (2 * (n_rules_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[find(key(left, right))];
    if (slot.rule.rank == Rule::kNever) ++n_rules_;
    slot = {key(left, right), rule};
    mark(slot.pair);
    token_of_rank_[rule.rank] = rule.token;
    if (token.size() == 2) byte_ranks_[byte_pair(begin_of(token)[0], begin_of(token)[1])] = rule.rank;
  }

  // Most pairs have no rule. A filter with one bit per hash, small enough for the second-level cache, detects them
  // without accessing the table: texts in many scripts encode a fifth faster.
  Rule operator()(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t pair = key(left, right), hash = kTableHash.mix(pair, 0);
    if (!(filter_[(hash >> 32 & filter_mask_) >> 6] >> (hash >> 32 & 63) & 1)) return {};
    return slots_[find(pair)].rule;
  }

  std::uint32_t rank(std::uint32_t left, std::uint32_t right) const { return (*this)(left, right).rank; }
  std::uint32_t byte_rank(Byte left, Byte right) const { return byte_ranks_[byte_pair(left, right)]; }
  std::uint32_t token(std::uint32_t rank) const { return token_of_rank_[rank]; }
  std::size_t n_ranks() const { return token_of_rank_.size(); }

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

  static std::size_t byte_pair(Byte left, Byte right) { return std::size_t{left} << 8 | right; }

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
  std::vector<std::uint32_t> byte_ranks_ = std::vector<std::uint32_t>(1 << 16, Rule::kNever);
};

}  // namespace webtext
