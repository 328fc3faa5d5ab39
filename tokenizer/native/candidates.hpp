// The queue of pairs to merge: the most frequent first, then the smallest (left, right).
//
// A pair keeps the count it was queued with. It may have become rarer since; then it is queued anew when its turn
// comes. Nearly all counts are small, and for each small count there is a list of the pairs with it, so that queueing
// is two stores. Only the list whose turn it is, and what is queued above it, is ordered, by a heap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "growing.hpp"

namespace webtext {

struct Pair {
  std::int64_t count;
  std::uint32_t left, right;
};

class Candidates {
 public:
  void push(const Growing<Pair>& pairs, std::uint32_t pair) {
    const std::int64_t count = pairs[pair].count;
    if (count >= lowest_) {
      heap_.push_back({pairs[pair], pair});
      std::push_heap(heap_.begin(), heap_.end());
      return;
    }
    if (next_.size() <= pair) next_.resize(pairs.size());
    next_[pair] = first_[count];
    first_[count] = pair;
  }

  // The first pair with the count that it has now, off the queue; 0 when none occurs at all.
  std::uint32_t pop(const Growing<Pair>& pairs) {
    while (true) {
      if (heap_.empty() && !refill(pairs)) return 0;
      const Candidate first = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      if (pairs[first.pair].count == first.queued.count) return first.pair;
      push(pairs, first.pair);
    }
  }

 private:
  struct Candidate {
    Pair queued;
    std::uint32_t pair;

    bool operator<(const Candidate& other) const {  // true when `other` comes first
      if (queued.count != other.queued.count) return queued.count < other.queued.count;
      return queued.left != other.queued.left ? queued.left > other.queued.left : queued.right > other.queued.right;
    }
  };

  // Orders the highest list; false when only pairs are left that no longer occur.
  bool refill(const Growing<Pair>& pairs) {
    while (heap_.empty() && lowest_ > 1) {
      --lowest_;
      for (std::uint32_t pair = first_[lowest_], next; pair; pair = next) {
        next = next_[pair];
        push(pairs, pair);
      }
    }
    return !heap_.empty();
  }

  static constexpr std::int64_t kLists = 1 << 16;

  std::int64_t lowest_ = kLists;  // pairs queued with this count or a higher one are in the heap
  std::vector<Candidate> heap_;
  std::vector<std::uint32_t> first_ = std::vector<std::uint32_t>(kLists);  // by count: a pair
  Growing<std::uint32_t> next_;                                            // by pair: the next with its count
};

}  // namespace webtext
