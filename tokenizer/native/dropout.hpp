// BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267, algorithm 1): in every step each possible merge of a piece is
// dropped with probability p, and the one of lowest rank that is left, the leftmost among equals, is done. A step in
// which all are dropped is the last. With p = 0 this is plain merging; with p = 1 nothing merges.
//
// Whether a merge is dropped is decided in order of (rank, place) and only until one is kept, which is the same thing
// with fewer random numbers. The possible merges that were looked at stay in a short sorted list, `front_`, the others
// in a heap, so that a piece of n bytes takes about n log n / (1 - p) steps, and never n².
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "characters.hpp"
#include "merge_rules.hpp"

namespace webtext {

// Random numbers in [0, 1) that depend on a seed and the index of a text: SplitMix64 (Steele et al. 2014, "Fast
// splittable pseudorandom number generators", figure 16), begun at a hash of both, and the upper 53 bits of each
// number.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::uint64_t index) : state_(scrambled(scrambled(seed) ^ index)) {}

  double operator()() { return static_cast<double>(scrambled(state_ += kStep) >> 11) * 0x1p-53; }

 private:
  static constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15u;

  static std::uint64_t scrambled(std::uint64_t bits) {
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
    return bits ^ bits >> 31;
  }

  std::uint64_t state_;
};

class DropoutMerger {
 public:
  // The tokens of a piece of less than 4 GiB; `token_of(byte)` are those of its bytes. Valid until the next call.
  template <class TokenOf>
  const std::vector<std::uint32_t>& operator()(const MergeRules& rules, const TokenOf& token_of, const Byte* bytes,
                                               std::size_t n_bytes, double dropout, RandomStream& random) {
    tokens_.resize(n_bytes);
    for (std::size_t at = 0; at < n_bytes; ++at) tokens_[at] = token_of(bytes[at]);
    link(rules);
    for (std::uint64_t key; choose(dropout, random, key);) merge(rules, static_cast<std::uint32_t>(key));
    std::size_t kept = 0;
    for (std::size_t at = 0; at < n_bytes; at = after_[at]) tokens_[kept++] = tokens_[at];
    tokens_.resize(kept);
    return tokens_;
  }

 private:
  // A possible merge of the tokens at `at` and after it: rank << 32 | at, which sorts as merges are done.
  static std::uint64_t key_of(Rule rule, std::uint32_t at) { return static_cast<std::uint64_t>(rule.rank) << 32 | at; }

  void link(const MergeRules& rules) {
    const auto n_tokens = static_cast<std::uint32_t>(tokens_.size());
    before_.resize(n_tokens);
    after_.resize(n_tokens);
    next_.resize(n_tokens);
    front_.clear();
    heap_.clear();
    for (std::uint32_t at = 0; at < n_tokens; ++at) {
      before_[at] = at - 1;
      after_[at] = at + 1;
      next_[at] = at + 1 < n_tokens ? rules(tokens_[at], tokens_[at + 1]) : Rule{};
      if (next_[at].rank != Rule::kNever) heap_.push_back(key_of(next_[at], at));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  // Takes the merge to be done next out of `front_`; false when all that are possible were dropped.
  bool choose(double dropout, RandomStream& random, std::uint64_t& key) {
    for (std::size_t place = 0;; ++place) {
      if (place == front_.size() && !fetch()) return false;
      if (random() < dropout) continue;
      key = front_[place];
      front_.erase(front_.begin() + static_cast<std::ptrdiff_t>(place));
      return true;
    }
  }

  // Moves the first of the heap to the end of `front_`, which holds all possible merges up to its last one.
  bool fetch() {
    while (!heap_.empty()) {
      const std::uint64_t key = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
      if (next_[static_cast<std::uint32_t>(key)].rank != key >> 32) continue;  // its tokens have changed since
      front_.push_back(key);
      return true;
    }
    return false;
  }

  void merge(const MergeRules& rules, std::uint32_t at) {
    const auto n_tokens = static_cast<std::uint32_t>(tokens_.size());
    const std::uint32_t gone = after_[at];
    forget(gone);
    if (at > 0) forget(before_[at]);
    tokens_[at] = next_[at].token;
    after_[at] = after_[gone];
    if (after_[at] < n_tokens) before_[after_[at]] = at;
    note(rules, at);
    if (at > 0) note(rules, before_[at]);
  }

  void forget(std::uint32_t at) {
    if (next_[at].rank == Rule::kNever) return;
    const std::uint64_t key = key_of(next_[at], at);
    const auto found = std::lower_bound(front_.begin(), front_.end(), key);
    if (found != front_.end() && *found == key) front_.erase(found);
    next_[at] = Rule{};
  }

  void note(const MergeRules& rules, std::uint32_t at) {
    next_[at] = after_[at] < tokens_.size() ? rules(tokens_[at], tokens_[after_[at]]) : Rule{};
    if (next_[at].rank == Rule::kNever) return;
    const std::uint64_t key = key_of(next_[at], at);
    if (!front_.empty() && key < front_.back()) {
      front_.insert(std::lower_bound(front_.begin(), front_.end(), key), key);
    } else {
      heap_.push_back(key);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }

  std::vector<std::uint32_t> tokens_, before_, after_;
  std::vector<Rule> next_;  // of the token and the one after it
  std::vector<std::uint64_t> front_, heap_;
};

}  // namespace webtext
