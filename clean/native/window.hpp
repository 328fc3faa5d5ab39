// N-grams of folded text, for shingles and evaluation n-grams. The readable twin is `ngrams_of` in clean/dedup/key.py.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "words.hpp"

namespace webtext::minhash {

inline constexpr uint32_t kWordWeight = 1000, kLeastWeight = 200;  // as in clean/text/unspaced.py; fold.cpp checks them

// Returns the weight of the word at the start of the text: lower for a letter of an unspaced script.
uint32_t weight_of(std::string_view text);

// Slides over n-grams: from each word, the fewest words that weigh n words (n spaced words, or more unspaced letters).
// So no n-gram is a prefix of another. The rolling hash takes constant time per word.
class Window {
 public:
  explicit Window(size_t n)
      : wanted_(n * kWordWeight),
        powers_(n * kWordWeight / kLeastWeight + 2, 1),
        words_(std::bit_ceil(powers_.size())) {
    if (n == 0) throw std::invalid_argument("an n-gram has at least one word");
    for (size_t i = 1; i < powers_.size(); ++i) powers_[i] = powers_[i - 1] * kGolden;
  }
  // Calls visit(hash, start, end) for each n-gram, in text order. Returns the hash of the words that are left, which
  // are all words if there are too few for an n-gram; nothing if there are no words. `has_letters` states whether the
  // text may contain letters of unspaced scripts: checking for them takes a sixth more time.
  template <typename Visit>
  std::optional<uint64_t> slide(std::string_view text, bool has_letters, Visit visit) {
    return has_letters ? slide_weighing<true>(text, visit) : slide_weighing<false>(text, visit);
  }

 private:
  struct Word {
    uint64_t hash;
    size_t start;
    uint64_t weight;
  };

  template <bool kHasLetters, typename Visit>
  std::optional<uint64_t> slide_weighing(std::string_view text, Visit& visit) {
    const uint64_t wanted = wanted_, *const powers = powers_.data(), leaving_factor = powers[wanted / kWordWeight - 1];
    Word* const words = words_.data();
    const size_t mask = words_.size() - 1;
    uint64_t rolling = 0, weight = 0;
    size_t first = 0, last = 0;
    for (size_t at = 0; at < text.size();) {
      if (text[at] == ' ') {
        ++at;
        continue;
      }
      Word& word = words[last++ & mask];
      word.start = at;
      if constexpr (kHasLetters) {
        word.weight = weight_of(text.substr(at));
        weight += word.weight;
      } else {
        weight += kWordWeight;
      }
      word.hash = hash_word(text, at);
      rolling = rolling * kGolden + word.hash;
      while (weight >= wanted) {
        const Word& oldest = words[first++ & mask];
        visit(mix(rolling), oldest.start, at);
        rolling -= oldest.hash * (kHasLetters ? powers[last - first] : leaving_factor);
        weight -= kHasLetters ? oldest.weight : kWordWeight;
        if constexpr (!kHasLetters) break;
      }
    }
    if (first == last) return std::nullopt;
    return mix(rolling);
  }

  uint64_t wanted_;
  std::vector<uint64_t> powers_;  // of kGolden
  std::vector<Word> words_;       // a ring
};

}  // namespace webtext::minhash
