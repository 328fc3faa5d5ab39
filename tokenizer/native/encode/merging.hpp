// Byte-pair merging of one piece: the pair of lowest rank first (the leftmost on ties), until none is left.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "encode/merge_rules.hpp"
#include "scan/characters.hpp"

namespace webtext {

// Merges pieces of less than 4 GiB; reuses its scratch memory.
class Merger {
 public:
  // Returns the tokens of a piece, valid until the next call.
  const std::vector<std::uint32_t>& operator()(const MergeRules& rules,
                                               const std::array<std::uint32_t, 256>& byte_tokens,
                                               std::string_view piece);

  std::size_t memory() const {
    return 4 * (tokens_.capacity() + ranks_.capacity() + before_.capacity() + after_.capacity() + lists_.capacity() +
                places_.capacity()) +
           8 * (filled_.capacity() + summary_.capacity() + entries_.capacity());
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;

  struct Entry {
    std::uint32_t at, next;
  };

  void merge_by_scanning(const MergeRules& rules);
  void merge_by_rank(const MergeRules& rules);
  void put(std::uint32_t at);
  std::uint32_t lowest_rank() const;
  void take(std::uint32_t rank);

  std::vector<std::uint32_t> tokens_, ranks_;  // ranks_[i]: of token i and the next one

  // For long pieces: tokens as a linked list, and for every rank a list of positions where it may occur.
  std::vector<std::uint32_t> before_, after_;
  std::vector<std::uint32_t> lists_;             // by rank: its first entry
  std::vector<std::uint64_t> filled_, summary_;  // a bit per list that has entries; a bit per word of those
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> places_;  // positions of the current rank
};

}  // namespace webtext
