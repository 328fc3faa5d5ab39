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
  }

  Rule operator()(std::uint32_t left, std::uint32_t right) const { return slots_[find(key(left, right))].rule; }

 private:
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
    for (const Slot& slot : old) {
      if (slot.rule.rank != Rule::kNever) slots_[find(slot.pair)] = slot;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(1 << 10);
  std::size_t n_rules_ = 0;
};

}  // namespace webtext
