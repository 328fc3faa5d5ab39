#include "encode/short_merging.hpp"

#include <algorithm>
#include <numeric>

#include "base/simd.hpp"

namespace webtext {

template <class Id>
void ShortRules<Id>::assign(const MergeRules& rules, const std::array<std::uint32_t, 256>& byte_tokens) {
#ifdef WEBTEXT_X86
  if (simd_level() < SimdLevel::kAvx2) return;
  bool fits = rules.n_ranks() <= Slot::kMost;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    fits = fits && byte_tokens[byte] <= Slot::kMost;
    byte_tokens_[byte] = static_cast<Id>(byte_tokens[byte]);
  }
  token_of_rank_.assign(rules.n_ranks(), 0);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> ranked_pairs;
  rules.each([&](std::uint64_t left, std::uint32_t right, Rule rule) {
    fits = fits && left <= Slot::kMost && right <= Slot::kMost && rule.token <= Slot::kMost;
    ranked_pairs.emplace_back(left << 32 | right, rule.rank);
    token_of_rank_[rule.rank] = static_cast<Id>(rule.token);
    if (ranked_pairs.size() == 1) first_token_ = static_cast<Id>(rule.token - rule.rank);
    is_dense_ = is_dense_ && static_cast<Id>(rule.rank + first_token_) == rule.token;
  });
  if (!fits) return;
  while (std::size_t{4} << (64 - shift_) < 5 * ranked_pairs.size()) --shift_;  // at least a fifth stays free
  const std::uint32_t least = shift_ - 2;
  while (!displace(ranked_pairs)) {  // no seed fits some bucket: a table twice as large
    if (--shift_ < least) return;
  }
  byte_ranks_.assign(1 << 16, kNever);
  for (std::uint32_t pair = 0; pair < 1 << 16; ++pair) {
    const std::uint32_t rank = rules.byte_rank(static_cast<Byte>(pair >> 8), static_cast<Byte>(pair));
    byte_ranks_[pair] = static_cast<Id>(rank);  // Rule::kNever becomes kNever
  }
  merge = &merge_short_avx2<Id>;
#endif
}

// Finds a seed for every bucket, fullest first, with which all its pairs get free slots.
template <class Id>
bool ShortRules<Id>::displace(const std::vector<std::pair<std::uint64_t, std::uint32_t>>& ranked_pairs) {
  const std::size_t n_slots = std::size_t{1} << (64 - shift_), n_buckets = n_slots / 4;
  slots_.assign(n_slots, {});
  seeds_.assign(n_buckets, 0);
  std::vector<std::uint32_t> starts(n_buckets + 1), members(ranked_pairs.size());
  for (const auto& [pair, rank] : ranked_pairs) ++starts[bucket(pair) + 1];
  for (std::size_t index = 0; index < n_buckets; ++index) starts[index + 1] += starts[index];
  std::vector<std::uint32_t> filled(starts.begin(), starts.end() - 1), order(n_buckets);
  for (std::uint32_t index = 0; index < ranked_pairs.size(); ++index)
    members[filled[bucket(ranked_pairs[index].first)]++] = index;
  std::iota(order.begin(), order.end(), 0);
  const auto size = [&](std::uint32_t index) { return starts[index + 1] - starts[index]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t left, std::uint32_t right) { return size(left) > size(right); });
  std::vector<bool> taken(n_slots);
  for (const std::uint32_t index : order) {
    constexpr std::uint32_t kMostSeeds = 1 << 16;  // seeds_ has 16 bits
    std::uint32_t seed = 0;
    for (; seed < kMostSeeds; ++seed) {
      std::uint32_t member = starts[index];
      for (; member < starts[index + 1]; ++member) {
        const std::uint32_t at = place(ranked_pairs[members[member]].first, seed);
        if (taken[at]) break;
        taken[at] = true;
      }
      if (member == starts[index + 1]) break;
      while (member-- > starts[index]) taken[place(ranked_pairs[members[member]].first, seed)] = false;
    }
    if (seed == kMostSeeds) return false;
    seeds_[index] = static_cast<std::uint16_t>(seed);
    for (std::uint32_t member = starts[index]; member < starts[index + 1]; ++member) {
      const auto [pair, rank] = ranked_pairs[members[member]];
      slots_[place(pair, seeds_[index])] = {static_cast<Id>(pair), static_cast<Id>(pair >> 32), static_cast<Id>(rank)};
    }
  }
  return true;
}

template class ShortRules<std::uint16_t>;
template class ShortRules<std::uint32_t>;

}  // namespace webtext
