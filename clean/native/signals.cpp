// The pass over a text: lines with their words, then duplicate lines and paragraphs, then n-grams of words.
//
// N-grams cost little, because an n-gram can only repeat if both of its (n-1)-grams repeat. So each size visits only
// the places that the previous size left, and a pair of numbers identifies an n-gram exactly. In prose few places are
// left at four words.
#include "signals.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "character_table.hpp"
#include "interning.hpp"
#include "phrases.hpp"

namespace webtext::signals {
namespace {

constexpr uint8_t kBeyondAscii = 128;
constexpr int64_t kWord = kTableWordWeight;
constexpr int64_t kShortLine = 30, kSpacedWord = 6, kFewestWords = 3;  // as in clean/rules/signals.py
constexpr size_t kLongestWord = 1000;
constexpr size_t kTopSizes = 4, kLargestGram = 10;
constexpr size_t kKeptMemory = 64 << 20;  // tables above this size are freed after a text
constexpr uint32_t kBullet = 0x2022;
constexpr std::string_view kDots = "...", kEllipsis = "\xE2\x80\xA6";

struct Character {
  uint32_t code;
  uint32_t size;
};

constexpr auto kAsciiClasses = [] {
  std::array<uint8_t, 256> classes{};
  for (size_t i = 0; i < 256; ++i) classes[i] = i < 128 ? kClasses[kClassIndex[0] * kClassBlock + i] : kBeyondAscii;
  return classes;
}();

uint8_t class_of_byte(char byte) { return kAsciiClasses[static_cast<uint8_t>(byte)]; }
uint8_t class_of(uint32_t code) { return kClasses[kClassIndex[code / kClassBlock] * kClassBlock + code % kClassBlock]; }

bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Decodes the character at `at`; an invalid byte is U+FFFD of size 1.
Character decode(const char* at, const char* end) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(at[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 1;
  if (size == 1 || static_cast<size_t>(end - at) < size) return {0xFFFD, 1};
  uint32_t code = lead & (0x7Fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if (!continues(at[i])) return {0xFFFD, 1};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {std::min(code, 0x10FFFFu), static_cast<uint32_t>(size)};
}

// Returns where the last character of [begin, end) begins.
const char* last_character(const char* begin, const char* end) {
  const char* at = end - 1;
  while (at > begin && end - at < 4 && continues(*at)) --at;
  return at;
}

size_t n_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); }));
}

bool is_closer(uint32_t code) {
  switch (code) {
    case '"':
    case '\'':
    case ')':
    case ']':
    case 0x201D:
    case 0x2019:
    case 0x300D:
    case 0x300F:
    case 0xFF09:
      return true;
    default:
      return false;
  }
}
bool is_wide_stop(uint32_t code) {
  return code == 0x3002 || code == 0xFF01 || code == 0xFF1F || code == 0x17D4 || code == 0x17D5 || code == 0x104B;
}

constexpr std::string_view kStopWordList[] = {"the", "be", "to", "of", "and", "that", "have", "with"};

// Packs a word of up to seven bytes and its size into one number; the highest byte marks longer words.
constexpr size_t kPackedBytes = 7;
constexpr uint64_t kLongWord = uint64_t{0xFF} << 56;

uint64_t packed(std::string_view word, const char* readable_end) {
  uint64_t bytes = 0;
  if (readable_end - word.data() >= 8) {
    std::memcpy(&bytes, word.data(), 8);
    if constexpr (std::endian::native == std::endian::big) bytes = __builtin_bswap64(bytes);
    bytes &= (uint64_t{1} << 8 * word.size()) - 1;
  } else {
    for (size_t i = 0; i < word.size(); ++i) bytes |= uint64_t{static_cast<uint8_t>(word[i])} << 8 * i;
  }
  return bytes | uint64_t{word.size()} << 56;
}

// Returns the size in bytes of the blank at `at`, or 0.
uint32_t blank_size(const char* at, const char* end) {
  const uint8_t kind = class_of_byte(*at);
  if (kind != kBeyondAscii) return kind & kBlank ? 1 : 0;
  const Character character = decode(at, end);
  return class_of(character.code) & kBlank ? character.size : 0;
}

double ratio(double part, double whole) { return whole != 0 ? part / whole : 0; }

// A run of characters between blanks.
struct Run {
  const char *begin, *end;
  const char *word_begin, *word_end;  // without the symbols at its ends; equal if there are only symbols
  uint32_t characters, word_characters;
  uint32_t wide_stops;
  uint8_t classes, last_class;
  // The weight of its words, and what letters of unspaced scripts add to its length.
  int64_t weight = kWord, added_length = 0;
  size_t longest_word = 0;
};

// Reads the run at `at` if it consists of ASCII letters and digits only, as most do; else returns false.
bool read_plain_run(const char* at, const char* end, Run& run) {
  const char* begin = at;
  uint8_t kind = 0, classes = 0;
  while (at < end && !((kind = class_of_byte(*at)) & (kBlank | kSymbol | kBeyondAscii))) classes |= kind, ++at;
  if (at == begin || (at < end && !(kind & kBlank))) return false;
  const auto size = static_cast<uint32_t>(at - begin);
  run = {.begin = begin,
         .end = at,
         .word_begin = begin,
         .word_end = at,
         .characters = size,
         .word_characters = size,
         .wide_stops = 0,
         .classes = classes,
         .last_class = 0,
         .longest_word = size};
  return true;
}

// Reads the run at `at`, which must not be a blank.
Run read_run(const char* at, const char* end) {
  Run run{.begin = at,
          .end = at,
          .word_begin = nullptr,
          .word_end = nullptr,
          .characters = 0,
          .word_characters = 0,
          .wide_stops = 0,
          .classes = 0,
          .last_class = 0};
  uint32_t beyond = 0, before_word = 0, beyond_at_word_end = 0;  // continuation bytes
  while (at < end) {
    uint8_t kind = class_of_byte(*at);
    uint32_t size = 1;
    if (kind == kBeyondAscii) {
      const Character character = decode(at, end);
      kind = class_of(character.code);
      size = character.size;
      run.wide_stops += is_wide_stop(character.code);
    }
    if (kind & kBlank) break;
    run.classes |= kind;
    run.last_class = kind;
    at += size;
    beyond += size - 1;
    if (!(kind & kSymbol)) {
      if (run.word_begin == nullptr) {
        run.word_begin = at - size;
        before_word = static_cast<uint32_t>(run.word_begin - run.begin) - (beyond - (size - 1));
      }
      run.word_end = at;
      beyond_at_word_end = beyond;
    }
  }
  run.end = at;
  run.characters = static_cast<uint32_t>(at - run.begin) - beyond;
  run.longest_word = run.characters;
  if (run.word_begin == nullptr) {
    run.word_begin = run.word_end = at;
  } else {
    run.word_characters = static_cast<uint32_t>(run.word_end - run.begin) - beyond_at_word_end - before_word;
  }
  return run;
}

// Returns whether a run ends a sentence: 1 if by . ! or ? and closing marks, or by a letter of Thai or Lao; 2 if by a
// wide stop, which the run has counted already.
int sentence_end(const Run& run) {
  const bool ends_in_word = run.word_begin < run.word_end && run.word_end == run.end;
  if (ends_in_word && (run.last_class & (kUnspaced | kPunctuation)) != kPunctuation) {
    return (run.last_class & kTerminal) != 0;
  }
  const char* end = run.end;
  while (end > run.begin) {
    const char* at = last_character(run.begin, end);
    const uint32_t code = decode(at, end).code;
    if (code == '.' || code == '!' || code == '?') return 1;
    if (is_wide_stop(code)) return 2;
    if (!is_closer(code)) return 0;
    end = at;
  }
  return 0;
}

// The figures of a line, collected from its runs.
struct Line {
  std::string_view text;
  size_t characters = 0, runs = 0, longest_word = 0, sentences = 0;
  int64_t weight = 0, added_length = 0;  // of its words; by unspaced letters, in thousandths of a character
  bool has_unspaced = false;
  const char *first = nullptr, *last = nullptr;  // of the text without blanks at its ends
};

// Copies a line without [1], [edit] and [citation needed].
void without_citations(std::string_view line, std::string& out) {
  constexpr std::string_view kMarks[] = {"[edit]", "[citation needed]"};
  out.clear();
  for (size_t at = 0; at < line.size();) {
    size_t size = 0;
    if (line[at] == '[') {
      size_t digits = at + 1;
      while (digits < line.size() && '0' <= line[digits] && line[digits] <= '9') ++digits;
      if (digits < line.size() && line[digits] == ']') size = digits + 1 - at;
      for (const auto mark : kMarks) {
        if (line.substr(at).starts_with(mark)) size = mark.size();
      }
      if (size == 0) {  // skips the digits too, so that a line of "[1[1[1" takes one pass
        out.append(line.substr(at, digits - at));
        at = digits;
        continue;
      }
    } else {
      out.push_back(line[at]);
      size = 1;
    }
    at += size;
  }
}

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

}  // namespace

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
  size_t n_bullets = 0, n_ellipses = 0, n_punctuated = 0, n_short = 0;
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

Measurer::Measurer() : state_(std::make_unique<State>()) {}
Measurer::~Measurer() = default;

Values Measurer::measure(std::string_view text) {
  State& state = *state_;
  state.restart(text);
  state.read_lines(text);
  state.read_paragraphs(text);
  const auto characters = static_cast<double>(n_characters(text));
  const auto newlines = static_cast<double>(std::count(text.begin(), text.end(), '\n'));
  const auto hashes = static_cast<double>(std::count(text.begin(), text.end(), '#'));
  size_t ellipses = 0;
  for (const auto ellipsis : {kDots, kEllipsis}) {
    for (size_t at = 0; (at = text.find(ellipsis, at)) != text.npos; at += ellipsis.size()) ++ellipses;
  }
  auto& counts = state.values.counts;
  counts[kCharacters] = static_cast<int64_t>(characters);
  counts[kWords] = static_cast<int64_t>(state.n_named) + state.letter_weight / kWord;
  counts[kStopWords] = std::count_if(state.occurrences.begin(), state.occurrences.begin() + std::size(kStopWordList),
                                     [](uint32_t n) { return n > 0; });
  auto& ratios = state.values.ratios;
  const auto weight = [&](size_t words) { return static_cast<double>(kWord * static_cast<int64_t>(words)); };
  const auto letters = static_cast<double>(state.letter_weight);
  const double words = weight(state.numbers.size() - state.n_letters) + letters;
  const auto lines = static_cast<double>(state.lines.n);
  ratios[kMeanWordLength] = letters > weight(state.n_named) ? std::numeric_limits<double>::quiet_NaN()
                                                            : ratio(static_cast<double>(state.n_named_characters),
                                                                    static_cast<double>(state.n_named));
  ratios[kHashWords] = ratio(static_cast<double>(kWord) * hashes, words);
  ratios[kEllipsisWords] = ratio(weight(ellipses), words);
  ratios[kAlphabeticWords] = ratio(weight(state.n_alphabetic) + letters, words);
  ratios[kBulletLines] = static_cast<double>(state.n_bullets) / (newlines + 1);
  ratios[kEllipsisLines] = static_cast<double>(state.n_ellipses) / (newlines + 1);
  ratios[kPunctuatedLines] = ratio(static_cast<double>(state.n_punctuated), lines);
  ratios[kShortLines] = ratio(static_cast<double>(state.n_short), lines);
  ratios[kNewlineWords] = ratio(static_cast<double>(kWord) * newlines, words);
  const auto repeated = static_cast<double>(state.lines.characters);
  ratios[kDuplicateLines] = ratio(static_cast<double>(state.lines.repeated), lines);
  ratios[kDuplicateLineCharacters] = ratio(repeated, characters);
  ratios[kDuplicateCharacters] = ratio(repeated, characters - newlines);
  ratios[kDuplicateParagraphs] =
      ratio(static_cast<double>(state.paragraphs.repeated), static_cast<double>(state.paragraphs.n));
  ratios[kDuplicateParagraphCharacters] = ratio(static_cast<double>(state.paragraphs.characters), characters);
  state.read_ngrams(characters);
  const Values values = state.values;
  state.release_memory();
  return values;
}

void Measurer::State::restart(std::string_view text) {
  values = {};
  words.restart(text.size() / 8);
  long_words.restart(text.size() / 32);
  lines.restart(text.size() / 64);
  paragraphs.restart(text.size() / 256);
  numbers.clear();
  occurrences.assign(std::max(text.size() / 16, std::size(kStopWordList)), 0);
  ends.assign(1, 0);
  text_end = text.data() + text.size();
  for (const auto word : kStopWordList) words.number(packed(word, word.data() + word.size()));  // 0 to 7
  n_named = n_named_characters = n_alphabetic = n_letters = 0;
  letter_weight = 0;
  weights.clear();
  n_bullets = n_ellipses = n_punctuated = n_short = 0;
  has_phrases = phrases_in(text) != 0;
}

void Measurer::State::read_lines(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) {
      const Line line = read_line<true>(text.substr(at, end - at));
      if (line.runs > 0) judge_line(line);
    }
    at = end + 1;
  }
}

template <bool kTakesWords>
Line Measurer::State::read_line(std::string_view text) {
  Line line{.text = text};
  const char *at = text.data(), *end = at + text.size();
  int ends_sentence = 0;
  while (at < end) {
    if (const uint32_t blank = blank_size(at, end); blank > 0) {
      at += blank;
      ++line.characters;
      continue;
    }
    Run run;
    if (!read_plain_run(at, end, run)) run = read_run(at, end);
    if (kTakesWords) take_words(run);
    if (line.runs == 0) line.first = run.begin;
    line.last = run.end;
    ++line.runs;
    line.characters += run.characters;
    line.longest_word = std::max(line.longest_word, run.longest_word);
    line.weight += run.weight;
    line.added_length += run.added_length;
    line.has_unspaced |= (run.classes & kUnspaced) != 0;
    ends_sentence = sentence_end(run);
    line.sentences += run.wide_stops + (ends_sentence == 1);
    at = run.end;
  }
  line.sentences += line.runs > 0 && ends_sentence == 0;
  return line;
}

void Measurer::State::take_words(Run& run) {
  if (run.classes & kUnspaced) return take_unspaced(run);
  n_alphabetic += (run.classes & kLetter) != 0;
  take_symbols(run.begin, run.word_begin);
  if (run.word_begin == run.word_end) return;
  ++n_named;
  n_named_characters += run.word_characters;
  take_word({run.word_begin, run.word_end}, run.word_characters);
  take_symbols(run.word_end, run.end);
}

// Takes each letter of an unspaced script, with the marks attached to it, as a word; take_stretch cuts the text
// between.
void Measurer::State::take_unspaced(Run& run) {
  run.weight = 0;
  run.longest_word = 0;
  const char* stretch = run.begin;
  for (const char* at = run.begin; at < run.end;) {
    const Character letter = decode(at, run.end);
    const uint8_t classes = class_of(letter.code);
    if (!(classes & kUnspaced)) {
      at += letter.size;
      continue;
    }
    take_stretch(stretch, at, run);
    const char* begin = at;
    int64_t characters = 0;
    uint8_t next = kAttached;
    for (uint32_t size = letter.size; (next & (kUnspaced | kAttached)) == kAttached;) {
      at += size;
      ++characters;
      if (at == run.end) break;
      const Character character = decode(at, run.end);
      next = class_of(character.code);
      size = character.size;
    }
    stretch = at;
    const uint32_t weight = kLetterWeights[classes / kScript];
    take_word({begin, at}, static_cast<size_t>(characters));
    weights.resize(numbers.size() - 1, kWord);
    weights.push_back(static_cast<uint16_t>(weight));
    ++n_letters;
    letter_weight += weight;
    run.weight += weight;
    run.added_length += kSpacedWord * weight - kWord * characters;
  }
  take_stretch(stretch, run.end, run);
}

// Takes a stretch between letters of unspaced scripts; all punctuation at its ends counts as symbols.
void Measurer::State::take_stretch(const char* begin, const char* end, Run& run) {
  const char *word_begin = end, *word_end = end;
  bool has_letter = false;
  for (const char* at = begin; at < end;) {
    const Character character = decode(at, end);
    const uint8_t classes = class_of(character.code);
    at += character.size;
    has_letter |= (classes & kLetter) != 0;
    if (classes & (kSymbol | kPunctuation)) continue;
    if (word_begin == end) word_begin = at - character.size;
    word_end = at;
  }
  take_symbols(begin, word_begin);
  if (word_begin == end) return;
  const size_t characters = n_characters({word_begin, word_end});
  n_alphabetic += has_letter;
  ++n_named;
  n_named_characters += characters;
  run.weight += kWord;
  run.longest_word = std::max(run.longest_word, characters);
  take_word({word_begin, word_end}, characters);
  take_symbols(word_end, end);
}

// Takes each symbol, or run of one symbol, as a word.
void Measurer::State::take_symbols(const char* begin, const char* end) {
  while (begin < end) {
    const size_t size = decode(begin, end).size;
    size_t repeats = 1;
    const char* at = begin + size;
    while (static_cast<size_t>(end - at) >= size && std::memcmp(at, begin, size) == 0) at += size, ++repeats;
    take_word({begin, at}, repeats);
    begin = at;
  }
}

void Measurer::State::take_word(std::string_view word, size_t characters) {
  uint64_t key;
  if (word.size() <= kPackedBytes) {
    key = packed(word, text_end);
  } else {
    bool is_new = false;
    key = kLongWord | long_words.number(word, is_new);
  }
  const uint32_t number = words.number(key);
  if (number >= occurrences.size()) occurrences.resize(occurrences.size() * 4);
  ++occurrences[number];
  numbers.push_back(number);
  ends.push_back(ends.back() + static_cast<int64_t>(characters));
}

void Measurer::State::judge_line(const Line& line) {
  const std::string_view stripped(line.first, line.last);
  const char* end = line.text.data() + line.text.size();
  n_bullets += *line.first == '-' || decode(line.first, end).code == kBullet;
  n_ellipses += stripped.ends_with(kDots) || stripped.ends_with(kEllipsis);
  n_punctuated += (class_of(decode(last_character(line.text.data(), end), end).code) & kTerminal) != 0;
  n_short += kWord * static_cast<int64_t>(line.characters) + line.added_length <= kWord * kShortLine;
  lines.add(line.text, line.characters);
  if (line.weight < kWord * kFewestWords || line.longest_word > kLongestWord) return;
  if (stripped.find('[') == stripped.npos) {
    judge_c4_line({.text = stripped, .sentences = line.sentences, .has_unspaced = line.has_unspaced});
  } else {
    without_citations(stripped, cited);
    judge_c4_line(read_line<false>(cited));
  }
}

void Measurer::State::judge_c4_line(const Line& line) {
  const std::string_view text = line.text;
  const bool is_cited = text.data() == cited.data();  // removing a citation may have formed a phrase
  const uint8_t phrases = has_phrases || is_cited ? phrases_in(text) : 0;
  const bool has_brace = text.find('{') != text.npos;
  bool punctuated =
      !text.empty() && std::string_view(".?!\"'").find(text.back()) != text.npos && !text.ends_with(kDots);
  if (line.has_unspaced) {
    const char* end = text.data() + text.size();
    const uint32_t last = decode(last_character(text.data(), end), end).code;
    punctuated |= (class_of(last) & kTerminal && !text.ends_with(kDots)) || last == 0x300D || last == 0x300F;
  }
  for (const size_t first : {kLoremIpsumLines, kPunctuatedLoremIpsumLines}) {
    if (first == kPunctuatedLoremIpsumLines && !punctuated) continue;
    int64_t* counts = values.counts.data() + first;
    counts[0] += (phrases & kLoremIpsum) != 0;
    if (phrases & kJavascript) continue;
    counts[1] += has_brace;
    if (!(phrases & kPolicy)) counts[2] += static_cast<int64_t>(line.sentences);
  }
}

void Measurer::State::read_paragraphs(std::string_view text) {
  const char *begin = text.data(), *end = begin + text.size();
  while (begin < end) {
    const Character character = decode(begin, end);
    if (!(class_of(character.code) & kBlank)) break;
    begin += character.size;
  }
  while (begin < end) {
    const char* at = last_character(begin, end);
    if (!(class_of(decode(at, end).code) & kBlank)) break;
    end = at;
  }
  const std::string_view body(begin, end);
  for (size_t at = 0;;) {
    const size_t found = std::min(body.find("\n\n", at), body.size());
    const std::string_view paragraph = body.substr(at, found - at);
    const size_t before = paragraphs.repeated;
    paragraphs.add(paragraph, 0);
    if (paragraphs.repeated > before) paragraphs.characters += n_characters(paragraph);
    if (found == body.size()) break;
    at = body.find_first_not_of('\n', found);
  }
}

void Measurer::State::read_ngrams(double n_characters) {
  if (!weights.empty()) {
    weights.resize(numbers.size(), kWord);
    for (size_t n = 2; n <= kLargestGram; ++n) {
      const double share = ratio(unspaced_characters(n), n_characters);
      values.ratios[n <= kTopSizes ? kTop2gram + n - 2 : kDuplicate5gram + n - 5] = std::min(1.0, share);
    }
    return;
  }
  places.resize(numbers.size() + 1);
  grams.resize(numbers.size() + 1);
  size_t kept = 0;
  for (uint32_t i = 0; i < numbers.size(); ++i) {
    places[kept] = i;
    grams[kept] = numbers[i];
    kept += occurrences[numbers[i]] > 1;  // no branch: it would be mispredicted half of the time
  }
  places.resize(kept);
  grams.resize(kept);
  for (size_t n = 2; n <= kLargestGram; ++n) {
    lengthen();
    if (n <= kTopSizes) {
      values.ratios[kTop2gram + n - 2] = std::min(1.0, ratio(top_characters(n), n_characters));
    } else {
      values.ratios[kDuplicate5gram + n - 5] = ratio(duplicate_characters(n), n_characters);
    }
  }
}

// Derives the repeated (n+1)-grams from the repeated n-grams: two adjacent ones form one, if it repeats too.
void Measurer::State::lengthen() {
  if (places.empty()) return;
  sides.resize(places.size());
  size_t kept = 0;
  for (size_t i = 0; i + 1 < places.size(); ++i) {
    const uint32_t place = places[i];
    sides[kept] = uint64_t{grams[i]} << 32 | grams[i + 1];
    places[kept] = place;
    kept += places[i + 1] == place + 1;
  }
  pairs.restart(kept);
  counts.assign(kept, 0);
  for (size_t i = 0; i < kept; ++i) ++counts[grams[i] = pairs.number(sides[i])];
  size_t repeated = 0;
  for (size_t i = 0; i < kept; ++i) {
    places[repeated] = places[i];
    grams[repeated] = grams[i];
    repeated += counts[grams[i]] > 1;
  }
  places.resize(repeated);
  grams.resize(repeated);
}

// Counts the characters of all occurrences of the most frequent n-gram (the first of several), blanks included.
double Measurer::State::top_characters(size_t n) const {
  if (numbers.size() < n) return 0;
  size_t place = 0;
  uint32_t most = 1;
  for (size_t i = 0; i < places.size(); ++i) {
    if (counts[grams[i]] > most) most = counts[grams[i]], place = places[i];
  }
  const auto length = static_cast<size_t>(ends[place + n] - ends[place]) + n - 1;
  return static_cast<double>(most) * static_cast<double>(length);
}

// Counts the characters of repeated n-grams, without overlap, from left to right.
double Measurer::State::duplicate_characters(size_t n) {
  if (places.empty()) return 0;
  seen.assign(counts.size(), 0);
  int64_t characters = 0;
  size_t next = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < next) continue;
    if (seen[grams[i]]) {
      characters += ends[places[i] + n] - ends[places[i]];
      next = places[i] + n;
    } else {
      seen[grams[i]] = 1;
    }
  }
  return static_cast<double>(characters);
}

// Does either for texts with unspaced letters, in which an n-gram is the fewest words that weigh n.
double Measurer::State::unspaced_characters(size_t n) {
  unspaced_grams.restart(numbers.size());
  counts.clear();
  places.clear();  // where each n-gram first occurs
  const int64_t wanted = static_cast<int64_t>(n) * kWord;
  int64_t weight = 0, repeated = 0;
  for (size_t first = 0, end = 0; first < numbers.size();) {
    while (end < numbers.size() && weight < wanted) weight += weights[end++];
    if (weight < wanted) break;
    bool is_new = false;
    const uint32_t number = unspaced_grams.number(
        {reinterpret_cast<const char*>(&numbers[first]), (end - first) * sizeof(numbers[0])}, is_new);
    if (is_new) counts.push_back(0), places.push_back(static_cast<uint32_t>(first));
    ++counts[number];
    if (!is_new && n > kTopSizes) {
      repeated += ends[end] - ends[first];
      first = end;
      weight = 0;
    } else {
      weight -= weights[first++];
    }
  }
  if (n > kTopSizes || counts.empty()) return static_cast<double>(repeated);
  const auto most = std::max_element(counts.begin(), counts.end());
  size_t at = places[static_cast<size_t>(most - counts.begin())];
  int64_t length = 0;
  for (weight = weights[at]; weight < wanted; weight += weights[++at]) {
    length += ends[at + 1] - ends[at] + (weights[at] == kWord);
  }
  return static_cast<double>(*most) * static_cast<double>(length + ends[at + 1] - ends[at]);
}

void Measurer::State::release_memory() {
  const size_t held =
      words.memory() + long_words.memory() + lines.pieces.memory() + paragraphs.pieces.memory() + pairs.memory() +
      unspaced_grams.memory() + weights.capacity() * sizeof(uint16_t) + cited.capacity() + seen.capacity() +
      (ends.capacity() + sides.capacity()) * sizeof(uint64_t) +
      (numbers.capacity() + occurrences.capacity() + places.capacity() + grams.capacity() + counts.capacity()) *
          sizeof(uint32_t);
  if (held > kKeptMemory) *this = State();
}

}  // namespace webtext::signals
