// The features of a text for the vote score: hashed n-grams of its words and bytes, each counted once. The readable
// twin is tests/reference/features.py.
#pragma once

#include "words/words.hpp"

namespace webtext::score {

inline constexpr size_t kBytes = 6;
inline constexpr uint64_t kByteSeed = 0xD1B54A32D192ED03u;  // tells n-grams of bytes from those of words

class Features {
 public:
  // Features are numbers below 2^bits.
  explicit Features(unsigned bits) : shift_(64 - bits), seen_(size_t{1} << bits) {}

  // Appends the features of a text in UTF-8: its words, pairs of words, and bytes from each character on.
  void append(std::string_view text, std::vector<uint32_t>& found) {
    const size_t first = found.size();
    const auto add = [&](uint64_t hash, std::string_view = {}) {
      const auto feature = static_cast<uint32_t>(hash >> shift_);
      if (!seen_[feature]) seen_[feature] = 1, found.push_back(feature);
    };
    const std::string_view folded = folder_.fold(text);
    unigrams_.slide(folded, folder_.has_letters(), add);
    bigrams_.slide(folded, folder_.has_letters(), add);
    words_.clear();
    minhash::append_words(folded, words_);
    words_ += "  ";  // readable bytes after the last n-gram; append_words ends in one blank more
    for (size_t at = 0; at + kBytes + 3 <= words_.size(); ++at) {
      uint64_t eight;
      std::memcpy(&eight, words_.data() + at, 8);
      if ((eight & 0xC0) != 0x80) add(minhash::mix((eight & ((uint64_t{1} << 8 * kBytes) - 1)) ^ kByteSeed));
    }
    for (size_t i = first; i < found.size(); ++i) seen_[found[i]] = 0;
  }

 private:
  minhash::Folder folder_;
  minhash::Window unigrams_{1}, bigrams_{2};
  unsigned shift_;
  std::string words_;
  std::vector<uint8_t> seen_;  // by feature; all 0 between texts
};

}  // namespace webtext::score
