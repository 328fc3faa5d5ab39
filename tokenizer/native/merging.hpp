// Byte-pair merging of one piece: the pair of lowest rank first, the leftmost among equals, until none is left.
#pragma once

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "characters.hpp"
#include "merge_rules.hpp"

namespace webtext {

// Scratch memory of `merge_piece`, kept between pieces.
struct MergeScratch {
  std::vector<std::uint32_t> tokens, before, after;
  std::vector<Rule> rules;
  std::vector<std::uint64_t> heap;
};

inline constexpr std::size_t kHeapFrom = 64;  // bytes: below, scanning for the lowest rank is faster than a heap

// Quadratic in the piece's length, without bookkeeping.
inline void merge_by_scanning(const MergeRules& rules, MergeScratch& scratch) {
  auto& tokens = scratch.tokens;
  std::size_t n_tokens = tokens.size();
  Rule* next = scratch.rules.data();  // next[i]: what tokens i and i + 1 give
  for (std::size_t index = 0; index + 1 < n_tokens; ++index) next[index] = rules(tokens[index], tokens[index + 1]);
  while (n_tokens > 1) {
    std::size_t best = 0;
    for (std::size_t index = 1; index + 1 < n_tokens; ++index) {
      if (next[index].rank < next[best].rank) best = index;
    }
    if (next[best].rank == Rule::kNever) break;
    tokens[best] = next[best].token;
    --n_tokens;
    std::copy(&tokens[best + 2], &tokens[0] + n_tokens + 1, &tokens[best + 1]);
    if (best + 1 < n_tokens) {
      std::copy(next + best + 2, next + n_tokens, next + best + 1);
      next[best] = rules(tokens[best], tokens[best + 1]);
    }
    if (best > 0) next[best - 1] = rules(tokens[best - 1], tokens[best]);
  }
  tokens.resize(n_tokens);
}

// n log n: a linked list of tokens and a heap of (rank, place). Entries whose pair has changed since are skipped.
inline void merge_by_heap(const MergeRules& rules, MergeScratch& scratch) {
  auto& [tokens, before, after, next, heap] = scratch;
  const auto n_tokens = static_cast<std::uint32_t>(tokens.size());
  before.resize(n_tokens);
  after.resize(n_tokens);
  heap.clear();
  const auto entry = [&](std::uint32_t at) { return static_cast<std::uint64_t>(next[at].rank) << 32 | at; };
  for (std::uint32_t at = 0; at < n_tokens; ++at) {
    before[at] = at - 1;
    after[at] = at + 1;
    next[at] = at + 1 < n_tokens ? rules(tokens[at], tokens[at + 1]) : Rule{};
    if (next[at].rank != Rule::kNever) heap.push_back(entry(at));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto renew = [&](std::uint32_t at) {
    next[at] = after[at] < n_tokens ? rules(tokens[at], tokens[after[at]]) : Rule{};
    if (next[at].rank == Rule::kNever) return;
    heap.push_back(entry(at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const std::uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    if (next[at].rank != top >> 32) continue;
    const std::uint32_t gone = after[at];
    tokens[at] = next[at].token;
    after[at] = after[gone];
    if (after[at] < n_tokens) before[after[at]] = at;
    next[gone] = Rule{};
    renew(at);
    if (at > 0) renew(before[at]);
  }
  std::uint32_t kept = 0;
  for (std::uint32_t at = 0; at < n_tokens; at = after[at]) tokens[kept++] = tokens[at];
  tokens.resize(kept);
}

// Merges scratch.tokens, which hold one token per byte of a piece of less than 4 GiB.
inline void merge_piece(const MergeRules& rules, MergeScratch& scratch) {
  scratch.rules.resize(scratch.tokens.size());
  scratch.tokens.size() < kHeapFrom ? merge_by_scanning(rules, scratch) : merge_by_heap(rules, scratch);
}

}  // namespace webtext
