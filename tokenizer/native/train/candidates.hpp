// The queue of pairs to merge: the most frequent first, then the smallest (left, right).
//
// A pair is queued with its current count. If it is less frequent when its turn comes, it is queued again. Nearly all
// counts are small, and each small count has a list of its pairs, so queueing takes two stores. A heap orders only the
// current list and the pairs queued with higher counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/growing.hpp"

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

  // Removes and returns the first pair by its current count; 0 if no pair occurs any more.
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

  std::size_t memory() const { return heap_.capacity() * sizeof(Candidate) + next_.memory(); }

 private:
  struct Candidate {
    Pair queued;
    std::uint32_t pair;

    bool operator<(const Candidate& other) const {  // true if `other` comes first
      if (queued.count != other.queued.count) return queued.count < other.queued.count;
      return queued.left != other.queued.left ? queued.left > other.queued.left : queued.right > other.queued.right;
    }
  };

  // Moves the highest list to the heap; false if only pairs with a count of 0 are left.
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
  std::vector<std::uint32_t> first_ = std::vector<std::uint32_t>(kLists);  // by count: the first pair of its list
  Growing<std::uint32_t> next_;                                            // by pair: the next one in its list
};

}  // namespace webtext
