// Byte-pair merging of one piece: the pair of lowest rank first, the leftmost among equals, until none is left.
#pragma once

#include <array>
#include <vector>

#include "characters.hpp"
#include "merge_rules.hpp"

namespace webtext {

// Merges pieces of less than 4 GiB; keeps its scratch memory between them.
class Merger {
 public:
  // The tokens of a piece, valid until the next call.
  const std::vector<std::uint32_t>& operator()(const MergeRules& rules,
                                               const std::array<std::uint32_t, 256>& byte_tokens, const Byte* bytes,
                                               std::size_t n_bytes);

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

  std::vector<std::uint32_t> tokens_, ranks_;  // ranks_[i]: of token i and the one after it

  // For long pieces: tokens as a linked list, and for every rank the list of places where it may be.
  std::vector<std::uint32_t> before_, after_;
  std::vector<std::uint32_t> lists_;             // by rank: its first entry
  std::vector<std::uint64_t> filled_, summary_;  // a bit per list that has entries; a bit per word of those
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> places_;  // those of the rank that is merged now
  std::uint32_t lowest_put_ = kNone;   // the lowest rank listed since it was taken
};

}  // namespace webtext
