// Every quality rule's value for a text, in one pass. The readable twin is tests/reference/signals.py; both return
// equal values for every text in UTF-8, to the last bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace webtext::signals {

// The integer columns, and their names in the 'signals' schema.
enum Count : size_t {
  kCharacters,
  kWords,
  kStopWords,
  kLoremIpsumLines,
  kCurlyBraceLines,
  kSentences,
  kPunctuatedLoremIpsumLines,
  kPunctuatedCurlyBraceLines,
  kPunctuatedSentences,
  kCounts
};
inline constexpr std::array<const char*, kCounts> kCountNames = {
    "n_characters",
    "n_words",
    "n_stop_words",
    "n_lorem_ipsum_lines",
    "n_curly_brace_lines",
    "n_sentences",
    "n_punctuated_lorem_ipsum_lines",
    "n_punctuated_curly_brace_lines",
    "n_punctuated_sentences",
};

// The columns of ratios and means, and their names.
enum Ratio : size_t {
  kMeanWordLength,
  kHashWords,
  kEllipsisWords,
  kAlphabeticWords,
  kBulletLines,
  kEllipsisLines,
  kPunctuatedLines,
  kShortLines,
  kProseCharacters,
  kNewlineWords,
  kDuplicateLines,
  kDuplicateLineCharacters,
  kDuplicateCharacters,
  kDuplicateParagraphs,
  kDuplicateParagraphCharacters,
  kTop2gram,
  kTop4gram = kTop2gram + 2,
  kDuplicate5gram,
  kDuplicate10gram = kDuplicate5gram + 5,
  kRatios
};
inline constexpr std::array<const char*, kRatios> kRatioNames = {
    "mean_word_length",
    "hash_word_ratio",
    "ellipsis_word_ratio",
    "alphabetic_word_ratio",
    "bullet_line_ratio",
    "ellipsis_line_ratio",
    "punctuated_line_ratio",
    "short_line_ratio",
    "prose_character_ratio",
    "newline_word_ratio",
    "duplicate_line_ratio",
    "duplicate_line_character_ratio",
    "duplicate_character_ratio",
    "duplicate_paragraph_ratio",
    "duplicate_paragraph_character_ratio",
    "top_2gram_character_ratio",
    "top_3gram_character_ratio",
    "top_4gram_character_ratio",
    "duplicate_5gram_character_ratio",
    "duplicate_6gram_character_ratio",
    "duplicate_7gram_character_ratio",
    "duplicate_8gram_character_ratio",
    "duplicate_9gram_character_ratio",
    "duplicate_10gram_character_ratio",
};

struct Values {
  std::array<int64_t, kCounts> counts;
  std::array<double, kRatios> ratios;
};

// Measures one text after another, and reuses its tables. Time is linear in the text and memory at most about 40 times
// its bytes (one-letter words), even for a hostile text: equal hashes are compared, and hashes have a random seed, so
// that no text can make them collide on purpose. Values don't depend on the seed.
class Measurer {
 public:
  Measurer();
  ~Measurer();
  // `text` is UTF-8 of less than 2 GiB; values of damaged text mean nothing.
  Values measure(std::string_view text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace webtext::signals
