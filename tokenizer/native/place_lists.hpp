// Per pair of the queue the places (slots of Words) where its pair was seen, ascending. Lists are made by one step of
// training for all its pairs, taken when the pair's turn comes, and lie in one array that is tidied now and then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "growing.hpp"
#include "words.hpp"

namespace webtext {

class PlaceLists {
 public:
  PlaceLists() { arena_.push_back(0); }  // so that no list begins at 0

  // Begins lists for the pairs from `first` on, with room for n_places[i] places each; none where that is 0.
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
  }

  // Adds the next place of an pair for which there is room. A single place is kept without a list.
  void add(std::uint32_t pair, std::uint32_t at) {
    std::uint32_t& next = next_[pair - first_];
    (next ? arena_[next++] : list_[pair]) = at;
  }

  // Appends the places of a pair, which it has no more.
  void take(std::uint32_t pair, std::vector<std::uint32_t>& places) {
    const std::uint32_t list = std::exchange(list_[pair], 0);
    if (!(list & kInArena)) return places.push_back(list);
    const std::uint32_t* begin = &arena_[list & ~kInArena] + kHead;
    places.insert(places.end(), begin, begin + begin[-1]);
  }

 private:
  static constexpr std::uint32_t kInArena = 1u << 31;
  static constexpr std::size_t kHead = 2;  // before the places: the pair, how many they are

  // Moves the lists that are not yet taken together, without the places where other pairs are by now.
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
    arena_.resize(end);
    tidy_at_ = std::max(tidy_at_, end + end / 4);
  }

  Growing<std::uint32_t> arena_, list_;
  std::vector<std::uint32_t> next_;  // by pair of this step: where its next place goes
  std::uint32_t first_ = 0;
  std::size_t tidy_at_ = std::size_t{1} << 16;
};

}  // namespace webtext
