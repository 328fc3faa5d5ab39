// Words of UTF-8 texts and n-grams of them, for shingles and evaluation n-grams. The readable twin is
// clean/dedup/key.py.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace webtext::minhash {

static_assert(std::endian::native == std::endian::little, "words are hashed as little-endian 64-bit loads");

// Odd constants with well-spread bits: the golden ratio's, and the multipliers of SplitMix64 (Steele et al. 2014).
inline constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
inline constexpr uint64_t kMixFirst = 0xBF58476D1CE4E5B9u;
inline constexpr uint64_t kMixSecond = 0x94D049BB133111EBu;
inline constexpr uint64_t kBlanks = 0x2020202020202020u;

inline uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * kMixFirst;
  x = (x ^ x >> 27) * kMixSecond;
  return x ^ x >> 31;
}

inline uint64_t absorb(uint64_t hash, uint64_t eight_bytes) {
  hash = (hash ^ eight_bytes) * kMixFirst;
  return hash ^ hash >> 32;
}

// The lowest set bit of the result is the high bit of the first blank among eight bytes; 0 if there is no blank.
inline uint64_t find_blank(uint64_t eight_bytes) {
  const uint64_t zero_where_blank = eight_bytes ^ kBlanks;
  return (zero_where_blank - 0x0101010101010101u) & ~zero_where_blank & 0x8080808080808080u;
}

inline uint64_t load_word(const char* bytes, size_t available) {
  uint64_t value = kBlanks;
  std::memcpy(&value, bytes, std::min<size_t>(available, 8));
  return value;
}

// Hashes the word at `at` and advances `at` past it.
inline uint64_t hash_word(std::string_view words, size_t& at) {
  uint64_t hash = kGolden;
  for (;;) {
    uint64_t bytes;
    if (at + 8 <= words.size()) [[likely]] {
      std::memcpy(&bytes, words.data() + at, 8);
    } else {
      bytes = load_word(words.data() + at, words.size() - at);
    }
    const uint64_t blank = find_blank(bytes);
    if (blank == 0) {
      hash = absorb(hash, bytes);
      at += 8;
      continue;
    }
    const int length = std::countr_zero(blank) / 8;
    at += length;
    return length == 0 ? hash : absorb(hash, bytes & ((uint64_t{1} << 8 * length) - 1));
  }
}

// Folds texts to words as clean/dedup/key.py defines them; reuses its memory from text to text.
class Folder {
 public:
  // Returns the folded words, separated by runs of blanks; valid until the next call. Invalid UTF-8 ends a word.
  std::string_view fold(std::string_view text);
  // Returns whether the last text had letters of unspaced scripts.
  bool has_letters() const { return has_letters_; }

 private:
  size_t fold_ascii(const char* text, size_t size);
  size_t fold_character(const char* text, size_t size);
  void apply(const uint8_t* units, size_t size);
  void put(const char* bytes, size_t size, uint8_t kind);
  void grow(size_t size);

  std::string buffer_;
  size_t used_ = 0;
  bool after_single_ = false, has_letters_ = false;
};

// Appends folded words to `out`, each followed by one blank.
void append_words(std::string_view folded, std::string& out);

// Returns the key of a text: its words with single blanks between them.
std::string key(std::string_view text);

inline constexpr uint32_t kWordWeight = 1000,
                          kLeastWeight = 200;  // as in unspaced.py; words.cpp checks them

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
  // Calls visit(hash, n-gram) for each n-gram, in text order. Returns the hash of the words that are left, which
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
        visit(mix(rolling), text.substr(oldest.start, at - oldest.start));
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

// The n-grams of one text after another: folds a text to words and slides over them.
class Ngrams {
 public:
  explicit Ngrams(size_t n) : window_(n) {}
  // As Window::slide; the n-grams are valid until the next call.
  template <typename Visit>
  std::optional<uint64_t> each(std::string_view text, Visit visit) {
    const std::string_view words = folder_.fold(text);
    return window_.slide(words, folder_.has_letters(), visit);
  }

 private:
  Folder folder_;
  Window window_;
};

}  // namespace webtext::minhash
