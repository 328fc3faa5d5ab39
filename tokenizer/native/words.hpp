// The distinct pieces as sequences of tokens, merged in place, in one array with a slot per byte.
//
// The slot of a token's first byte holds the number of the pair that it forms with the token after it, 0 where the
// piece ends. The slot of its last byte, if it has several, holds its length (marked), so that both neighbours of a
// place are found without links, and other slots hold a mark alone. A merge changes five slots, however long the piece
// is.
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>

#include "growing.hpp"

namespace webtext {

class Words {
 public:
  static constexpr std::uint32_t kMark = 1u << 31;

  Words() { slots_.push_back(0); }

  // Begins a piece that occurs `count` times; its tokens follow.
  void begin(std::int64_t count) {
    const std::size_t at = slots_.size();
    add_blocks(at + 1);
    blocks_[at / 64].starts |= std::uint64_t{1} << at % 64;
    counts_.push_back(count);
  }

  // Appends a token of `n_bytes` bytes and the number of the pair it forms with the next, 0 for the last token.
  void append(std::uint32_t pair, std::uint32_t n_bytes) {
    const std::size_t at = slots_.size();
    if (at + n_bytes >= kMark) throw std::length_error("the distinct pieces have 2 GiB or more");
    slots_.resize(at + n_bytes);
    add_blocks(at + n_bytes);
    for (std::size_t inner = at + 1; inner < at + n_bytes; ++inner) slots_[inner] = kMark;
    set(static_cast<std::uint32_t>(at), n_bytes, pair);
  }

  std::size_t size() const { return slots_.size(); }
  const std::uint32_t& slot(std::uint32_t at) const { return slots_[at]; }
  void set_pair(std::uint32_t at, std::uint32_t pair) { slots_[at] = pair; }

  // The place of the token before the one at `at`. Its pair is 0 when the piece begins at `at`.
  std::uint32_t before(std::uint32_t at) const {
    const std::uint32_t last = slots_[at - 1];
    return last & kMark ? at - (last & ~kMark) : at - 1;
  }

  // Makes one token of `n_bytes` bytes of the tokens at `at` and `second`.
  void join(std::uint32_t at, std::uint32_t second, std::uint32_t n_bytes, std::uint32_t pair) {
    slots_[second] = kMark;
    set(at, n_bytes, pair);
  }

  std::uint32_t word(std::uint32_t at) const {
    const Block& block = blocks_[at / 64];
    return block.n_before + static_cast<std::uint32_t>(std::popcount(block.starts << (63 - at % 64))) - 1;
  }

  std::int64_t count(std::uint32_t at) const { return counts_[word(at)]; }

  void prefetch(std::uint32_t at) const { __builtin_prefetch(&slots_[at]); }

 private:
  struct Block {  // 64 slots: where words start, and how many start before
    std::uint64_t starts;
    std::uint32_t n_before;
  };

  void add_blocks(std::size_t n_slots) {
    while (64 * blocks_.size() < n_slots) blocks_.push_back({0, static_cast<std::uint32_t>(counts_.size())});
  }

  void set(std::uint32_t at, std::uint32_t n_bytes, std::uint32_t pair) {
    slots_[at + n_bytes - 1] = kMark | n_bytes;
    slots_[at] = pair;
  }

  Growing<std::uint32_t> slots_;
  Growing<Block> blocks_;
  Growing<std::int64_t> counts_;
};

}  // namespace webtext
