// Counting what superwords are learned from (Schmidt et al. 2026, "Faster Superword Tokenization", arXiv:2604.05192):
// runs of words, each of which is one token, with how often every distinct run occurs. Merging them is the trainer's
// work, as for pieces.
//
// Few runs of a large corpus are alike, so they are cut where they cannot merge: a superword that reaches over two
// words occurs no more often than the two words in a row. A first pass counts pairs of words; the second cuts runs at
// every pair that occurs less than `min_count` times. As long as training stops at that count nothing is lost.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "piece_counts.hpp"
#include "scan_superwords.hpp"

namespace webtext {

// How often two words stand in a row. Of more than `kMaxPairs` distinct pairs the rarest half is forgotten.
class WordPairCounts {
 public:
  using Pair = std::uint64_t;

  void add(Pair pair, std::int64_t count);
  void add_all(WordPairCounts other);
  std::int64_t operator[](Pair pair) const;

  // The count of the n-th most frequent pair, 0 when there are fewer.
  std::int64_t count_of_nth(std::size_t n) const;

  // What a count may have lost with forgotten pairs.
  std::int64_t error() const { return error_; }

 private:
  static constexpr std::size_t kMaxPairs = std::size_t{1} << 24;

  struct Slot {
    Pair pair;
    std::int64_t count = 0;
  };

  std::size_t find(Pair pair) const;
  void rebuild(std::size_t n_slots, std::int64_t min_count);

  std::vector<Slot> slots_;
  std::size_t n_pairs_ = 0;
  std::int64_t error_ = 0;
};

class SuperwordCounts {
 public:
  static constexpr std::uint32_t kNone = ~0u;

  // words[token] are the bytes of a piece that this token is all of; those that are no words take no part.
  explicit SuperwordCounts(const std::vector<std::string>& words);

  // The first pass; every text counts `weight` times. No run crosses the end of a text.
  void count_pairs(const std::vector<std::string_view>& texts, std::int64_t weight, unsigned n_threads);
  const WordPairCounts& pairs() const { return pairs_; }

  // The second: adds runs of two words or more, cut at pairs that occur less than `min_count` times.
  void count_runs(const std::vector<std::string_view>& texts, std::int64_t weight, unsigned n_threads,
                  std::int64_t min_count, PieceCounts& runs) const;

  // Appends the tokens of a run.
  void encode(const Byte* bytes, std::size_t n_bytes, std::vector<std::uint32_t>& tokens) const;

 private:
  struct Word {
    std::string bytes;
    std::uint64_t hash;
    std::uint32_t token = kNone;
  };

  const Word* find(const Byte* bytes, std::size_t n_bytes) const;
  void find_runs(std::string_view text, std::int64_t min_count, std::vector<TextShare>& runs) const;
  template <class Use>
  void each_word(std::string_view text, const Use& use) const;

  std::vector<Word> words_;  // open addressing
  WordPairCounts pairs_;
};

}  // namespace webtext
