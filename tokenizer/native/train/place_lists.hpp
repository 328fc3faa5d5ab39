// For each queued pair, the places (slots of Words) where it was seen, in ascending order. A training step creates the
// lists of all its pairs; a list is removed when its pair is merged. All lists are in one array, which is compacted
// when it is a quarter larger than it ever was after a compaction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/growing.hpp"
#include "train/words.hpp"

namespace webtext {

class PlaceLists {
 public:
  PlaceLists() { arena_.push_back(0); }  // so that no list begins at position 0

  // Begins lists for the pairs from `first` on, with room for n_places[i] places each; no list if that is 0.
  void begin(std::uint32_t first, const std::vector<std::uint32_t>& n_places, const Words& words) {
    if (arena_.size() >= tidy_at_) tidy(words);
    first_ = first;
    list_.resize(first + n_places.size());
    next_.resize(n_places.size());
    for (std::size_t index = 0; index < n_places.size(); ++index) {
      const auto pair = static_cast<std::uint32_t>(first + index), n = n_places[index];
      list_[pair] = 0;
      next_[index] = 0;
      if (n < 2) continue;
      const std::size_t at = arena_.size();
      if (at + kHead + n >= kInArena) throw std::length_error("2^31 places of pairs of tokens");
      arena_.resize(at + kHead + n);
      arena_[at] = pair;
      arena_[at + 1] = n;
      list_[pair] = kInArena | static_cast<std::uint32_t>(at);
      next_[index] = static_cast<std::uint32_t>(at + kHead);
    }
    if (first == 1) tidy_at_ = std::max(tidy_at_, arena_.size() + arena_.size() / 4);
  }

  // Adds the next place of a pair that has room. A single place is stored without a list.
  void add(std::uint32_t pair, std::uint32_t at) {
    std::uint32_t& next = next_[pair - first_];
    (next ? arena_[next++] : list_[pair]) = at;
  }

  // Appends a pair's places to `places` and removes its list.
  void take(std::uint32_t pair, std::vector<std::uint32_t>& places) {
    const std::uint32_t list = std::exchange(list_[pair], 0);
    if (!(list & kInArena)) return places.push_back(list);
    const std::uint32_t* begin = &arena_[list & ~kInArena] + kHead;
    places.insert(places.end(), begin, begin + begin[-1]);
  }

  std::size_t memory() const { return arena_.memory() + list_.memory(); }

 private:
  static constexpr std::uint32_t kInArena = 1u << 31;
  static constexpr std::size_t kHead = 2;  // before the places: the pair, and their number

  // Compacts the remaining lists, without places that belong to other pairs by now. Compacting whenever the array had
  // grown by a quarter since the last time was a third slower.
  void tidy(const Words& words) {
    std::size_t end = 1;
    for (std::size_t at = 1, after; at < arena_.size(); at = after) {
      const std::uint32_t pair = arena_[at];
      after = at + kHead + arena_[at + 1];
      if (list_[pair] != (kInArena | at)) continue;
      list_[pair] = kInArena | static_cast<std::uint32_t>(end);
      std::size_t kept = end + kHead;
      for (std::size_t place = at + kHead; place < after; ++place) {
        if (words.slot(arena_[place]) == pair) arena_[kept++] = arena_[place];
      }
      arena_[end] = pair;
      arena_[end + 1] = static_cast<std::uint32_t>(kept - end - kHead);
      end = kept;
    }
    tidy_at_ = std::max(tidy_at_, end + end / 4);
    arena_.resize(end);
  }

  Growing<std::uint32_t> arena_, list_;
  std::vector<std::uint32_t> next_;  // by pair of this step: position for its next place
  std::uint32_t first_ = 0;
  std::size_t tidy_at_ = std::size_t{1} << 16;
};

}  // namespace webtext
