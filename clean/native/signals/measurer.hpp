// What the parts of the pass over a text share: the classes of characters, the state, the figures of a line.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "character_table.hpp"
#include "signals/interning.hpp"
#include "signals/signals.hpp"
#include "utf8.hpp"

namespace webtext::signals {

inline constexpr uint8_t kBeyondAscii = 128;
inline constexpr int64_t kWord = kTableWordWeight;
inline constexpr size_t kTopSizes = 4, kLargestGram = 10;
inline constexpr std::string_view kDots = "...", kEllipsis = "\xE2\x80\xA6";

inline constexpr auto kAsciiClasses = [] {
  std::array<uint8_t, 256> classes{};
  for (size_t i = 0; i < 256; ++i) classes[i] = i < 128 ? kClasses[kClassIndex[0] * kClassBlock + i] : kBeyondAscii;
  return classes;
}();

inline uint8_t class_of_byte(char byte) { return kAsciiClasses[static_cast<uint8_t>(byte)]; }
inline uint8_t class_of(uint32_t code) {
  return kClasses[kClassIndex[code / kClassBlock] * kClassBlock + code % kClassBlock];
}

// Returns where the last character of [begin, end) begins.
inline const char* last_character(const char* begin, const char* end) {
  const char* at = end - 1;
  while (at > begin && end - at < 4 && continues(*at)) --at;
  return at;
}

inline size_t n_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); }));
}

inline double ratio(double part, double whole) { return whole != 0 ? part / whole : 0; }

// C4's phrases, as bits.
inline constexpr uint8_t kLoremIpsum = 1, kJavascript = 2, kPolicy = 4;
// Returns which of them the text contains, ignoring the case of ASCII letters.
uint8_t phrases_in(std::string_view text);

// The figures of a line, collected from its runs.
struct Line {
  std::string_view text;
  size_t characters = 0, runs = 0, longest_word = 0, sentences = 0;
  // Of its words and of the plain ones; by unspaced letters, in thousandths of a character.
  int64_t weight = 0, plain_weight = 0, added_length = 0;
  bool has_unspaced = false, has_cells = false, ends_sentence = false;
  const char *first = nullptr, *last = nullptr;  // of the text without blanks at its ends
};

// Counts pieces of text and the repeated ones among them.
struct Repeats {
  Pieces pieces;
  size_t n = 0, repeated = 0, characters = 0;

  void restart(size_t expected) {
    pieces.restart(expected);
    n = repeated = characters = 0;
  }
  void add(std::string_view piece, size_t piece_characters) {
    bool is_new = false;
    pieces.number(piece, is_new);
    ++n;
    if (!is_new) ++repeated, characters += piece_characters;
  }
};

struct Run;

struct Measurer::State {
  Values values;
  // words
  Keys words;  // words of up to kPackedBytes bytes are packed, longer ones are numbers in long_words
  Pieces long_words;
  const char* text_end = nullptr;
  std::vector<uint32_t> numbers, occurrences;  // by position in the text; by number
  std::vector<int64_t> ends;                   // cumulative characters of the words, without blanks
  size_t n_named = 0, n_named_characters = 0, n_alphabetic = 0;
  size_t n_letters = 0;           // of unspaced scripts
  int64_t letter_weight = 0;      // their total weight
  std::vector<uint16_t> weights;  // of the words up to the last such letter
  // lines
  size_t n_bullets = 0, n_ellipses = 0, n_punctuated = 0, n_short = 0, n_prose_characters = 0;
  bool has_phrases = false;
  Repeats lines, paragraphs;
  std::string cited;
  // n-grams: the remaining positions in the text, and the numbers of the n-grams there
  Keys pairs;
  std::vector<uint64_t> sides;
  std::vector<uint32_t> places, grams, counts;
  std::vector<uint8_t> seen;
  Pieces unspaced_grams;

  void restart(std::string_view text);
  void restart_words(std::string_view text);
  int64_t n_stop_words() const;
  void read_lines(std::string_view text);
  void read_paragraphs(std::string_view text);
  void read_ngrams(double n_characters);
  void release_memory();

 private:
  template <bool kTakesWords>
  Line read_line(std::string_view text);
  void take_words(Run& run);
  void take_unspaced(Run& run);
  void take_stretch(const char* begin, const char* end, Run& run);
  void take_symbols(const char* begin, const char* end);
  void take_word(std::string_view word, size_t characters);
  void judge_line(const Line& line);
  void judge_c4_line(const Line& line);
  void lengthen();
  double top_characters(size_t n) const;
  double duplicate_characters(size_t n);
  double unspaced_characters(size_t n);
};

}  // namespace webtext::signals
