#include "encode/short_merging.hpp"

#include <algorithm>
#include <numeric>

#include "base/simd.hpp"

namespace webtext {

MergeShort merge_short() {
#ifdef WEBTEXT_X86
  if (simd_level() >= SimdLevel::kAvx2) return &merge_short_avx2;
#endif
  return nullptr;
}

bool NarrowRules::assign(const MergeRules& rules, const std::array<std::uint32_t, 256>& byte_tokens) {
  if (rules.n_ranks() >= kNever) return false;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte_tokens[byte] > 0xFFFF) return false;
    byte_tokens_[byte] = static_cast<std::uint16_t>(byte_tokens[byte]);
  }
  token_of_rank_.assign(rules.n_ranks(), 0);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranked_pairs;
  bool fits = true;
  rules.each([&](std::uint32_t left, std::uint32_t right, Rule rule) {
    fits = fits && left <= 0xFFFF && right <= 0xFFFF && rule.token <= 0xFFFF;
    ranked_pairs.emplace_back(left << 16 | right, rule.rank);
    token_of_rank_[rule.rank] = static_cast<std::uint16_t>(rule.token);
    if (ranked_pairs.size() == 1) first_token_ = static_cast<std::uint16_t>(rule.token - rule.rank);
    is_dense_ = is_dense_ && static_cast<std::uint16_t>(rule.rank + first_token_) == rule.token;
  });
  if (!fits) return false;
  while (std::size_t{4} << (32 - shift_) < 5 * ranked_pairs.size()) --shift_;  // at least a fifth stays free
  while (!displace(ranked_pairs)) {  // no seed fits some bucket: a table twice as large
    if (--shift_ < 8) return false;
  }
  byte_ranks_.assign(1 << 16, kNever);
  for (std::uint32_t left = 0; left < 256; ++left) {
    for (std::uint32_t right = 0; right < 256; ++right) {
      const std::uint32_t rank = rules.byte_rank(static_cast<Byte>(left), static_cast<Byte>(right));
      if (rank != Rule::kNever) byte_ranks_[left << 8 | right] = static_cast<std::uint16_t>(rank);
    }
  }
  return true;
}

// Finds a seed for every bucket, fullest first, with which all its pairs get free slots.
bool NarrowRules::displace(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& ranked_pairs) {
  const std::size_t n_slots = std::size_t{1} << (32 - shift_), n_buckets = n_slots / 4;
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
      slots_[place(pair, seeds_[index])] = {static_cast<std::uint16_t>(pair), static_cast<std::uint16_t>(pair >> 16),
                                            static_cast<std::uint16_t>(rank)};
    }
  }
  return true;
}

}  // namespace webtext
