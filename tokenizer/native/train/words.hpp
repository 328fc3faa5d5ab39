// The distinct pieces as sequences of tokens, merged in place, in one array with a slot per byte.
//
// The slot of a token's first byte contains the number of the pair that it forms with the next token, 0 at the end of
// the piece. The slot of its last byte, if it has several, contains its length (marked), so that both neighbours of a
// place are found without links. Other slots contain only a mark. A merge changes five slots, however long the piece
// is.
//
// Pieces are in the order of their counts, the largest first: the table that maps a place to its piece's count is then
// small enough for the first-level cache. (A count per piece, found by a bit set of beginnings, took half of all time.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "base/hashing.hpp"
#include "base/huge_array.hpp"

namespace webtext {

class Words {
 public:
  static constexpr std::uint32_t kMark = 1u << 31;

  // Call this for all pieces first, then `room_is_made`; then add the pieces.
  void make_room(std::int64_t count, std::size_t n_bytes) { room_[count] += n_bytes; }

  void room_is_made() {
    for (const auto& [count, n_bytes] : room_) counts_.push_back(count);
    std::sort(counts_.rbegin(), counts_.rend());
    std::size_t n_slots = 1;  // the first slot is before all pieces
    for (const std::int64_t count : counts_) {
      starts_.push_back(static_cast<std::uint32_t>(n_slots));
      n_slots += std::exchange(room_[count], n_slots);
      if (n_slots >= kMark) throw std::length_error("the distinct pieces have 2 GiB or more");
    }
    slots_ = HugeArray<std::uint32_t>(n_slots);
    slots_.provide();
    for (std::size_t at = 0, group = 0; at < n_slots + kBlock; at += kBlock) {
      while (group + 1 < starts_.size() && starts_[group + 1] <= at) ++group;
      group_of_block_.push_back(static_cast<std::uint32_t>(group));
    }
  }

  // Begins a piece; append its tokens next.
  void begin(std::int64_t count) { next_ = &room_[count]; }

  // Appends a token of `n_bytes` bytes, with the number of the pair that it forms with the next one (0 for the last).
  void append(std::uint32_t pair, std::uint32_t n_bytes) {
    const std::size_t at = std::exchange(*next_, *next_ + n_bytes);
    for (std::size_t inner = at + 1; inner < at + n_bytes; ++inner) slots_[inner] = kMark;
    set(at, n_bytes, pair);
  }

  std::size_t size() const { return slots_.size(); }
  std::size_t memory() const { return slots_.memory(); }
  const std::uint32_t& slot(std::uint32_t at) const { return slots_[at]; }
  void set_pair(std::uint32_t at, std::uint32_t pair) { slots_[at] = pair; }

  // The place of the token before the one at `at`. Its pair is 0 when the piece begins at `at`.
  std::uint32_t before(std::uint32_t at) const {
    const std::uint32_t last = slots_[at - 1];
    return last & kMark ? at - (last & ~kMark) : at - 1;
  }

  // Joins the tokens at `at` and `second` to one token of `n_bytes` bytes.
  void join(std::uint32_t at, std::uint32_t second, std::uint32_t n_bytes, std::uint32_t pair) {
    slots_[second] = kMark;
    set(at, n_bytes, pair);
  }

  // The count of the piece that `at` belongs to.
  std::int64_t count(std::uint32_t at) const {
    const std::uint32_t* block = &group_of_block_[at / kBlock];
    if (block[0] == block[1]) return counts_[block[0]];
    const std::uint32_t* starts = starts_.data();
    return counts_[std::upper_bound(starts + block[0] + 1, starts + block[1] + 1, at) - starts - 1];
  }

 private:
  static constexpr std::size_t kBlock = 512;  // slots

  void set(std::size_t at, std::uint32_t n_bytes, std::uint32_t pair) {
    slots_[at + n_bytes - 1] = kMark | n_bytes;
    slots_[at] = pair;
  }

  HugeArray<std::uint32_t> slots_;
  std::vector<std::int64_t> counts_;           // by group of pieces with equal counts
  std::vector<std::uint32_t> starts_;          // by group: its first slot
  std::vector<std::uint32_t> group_of_block_;  // of a block's first slot
  struct HashCount {                           // with secret keys: a file of counts can contain any numbers
    std::size_t operator()(std::int64_t count) const { return kTableHash.mix(static_cast<std::uint64_t>(count), 0); }
  };
  // By count: first the bytes of the pieces, later the next free slot.
  std::unordered_map<std::int64_t, std::size_t, HashCount> room_;
  std::size_t* next_ = nullptr;
};

}  // namespace webtext
