// Cuts lines into runs between blanks, and runs into words.
#include <bit>
#include <cstring>

#include "signals/measurer.hpp"

namespace webtext::signals {

// A run of characters between blanks.
struct Run {
  const char *begin = nullptr, *end = nullptr;
  const char *word_begin = nullptr,
             *word_end = nullptr;  // without the symbols at its ends; equal if there are only symbols
  uint32_t characters = 0, word_characters = 0, wide_stops = 0;
  uint8_t classes = 0, last_class = 0;
  bool is_plain = false;  // its word consists of letters, hyphens and apostrophes
  // The weight of its words, and what letters of unspaced scripts add to its length.
  int64_t weight = kWord, added_length = 0;
  size_t longest_word = 0;
};

namespace {

constexpr int64_t kSpacedWord = 6;  // as in tests/reference/signals.py
constexpr std::string_view kStopWordList[] = {"the", "be", "to", "of", "and", "that", "have", "with"};

constexpr uint32_t kClosers[] = {'"', '\'', ')', ']', 0x201D, 0x2019, 0x300D, 0x300F, 0xFF09};
constexpr uint32_t kWideStops[] = {0x3002, 0xFF01, 0xFF1F, 0x17D4, 0x17D5, 0x104B};

constexpr uint32_t kJoiners[] = {'\'', '-', 0x2010, 0x2019};

bool is_joiner(uint32_t code) { return std::ranges::count(kJoiners, code) > 0; }
bool is_closer(uint32_t code) { return std::ranges::count(kClosers, code) > 0; }
bool is_wide_stop(uint32_t code) { return std::ranges::count(kWideStops, code) > 0; }

// Packs a word of up to seven bytes and its size into one number; the highest byte marks longer words. Comparing bytes
// instead of looking up a piece, and numbering without a branch on whether a word is new, make a document a fifth
// faster.
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

// Reads the run at `at` if it consists of ASCII letters and digits only, as most do; else returns false. Word ends from
// 64-bit masks of letters, made for the entire text first, were not faster.
bool read_plain_run(const char* at, const char* end, Run& run) {
  const char* begin = at;
  uint8_t kind = 0, classes = 0, common = kLetter;
  while (at < end && !((kind = class_of_byte(*at)) & (kBlank | kSymbol | kBeyondAscii))) {
    classes |= kind, common &= kind, ++at;
  }
  if (at == begin || (at < end && !(kind & kBlank))) return false;
  const auto size = static_cast<uint32_t>(at - begin);
  run = {.begin = begin,
         .end = at,
         .word_begin = begin,
         .word_end = at,
         .characters = size,
         .word_characters = size,
         .classes = classes,
         .is_plain = common != 0,
         .longest_word = size};
  return true;
}

// Reads the run at `at`, which must not be a blank.
Run read_run(const char* at, const char* end) {
  Run run{.begin = at, .end = at};
  uint32_t beyond = 0, before_word = 0, beyond_at_word_end = 0;  // continuation bytes
  bool is_plain = true, symbol_waits = false;                    // a symbol is inside the word if more of it follows
  while (at < end) {
    uint8_t kind = class_of_byte(*at);
    uint32_t size = 1, code = static_cast<uint8_t>(*at);
    if (kind == kBeyondAscii) {
      const Character character = decode(at, end);
      code = character.code;
      kind = class_of(code);
      size = character.size;
      run.wide_stops += is_wide_stop(code);
    }
    if (kind & kBlank) break;
    run.classes |= kind;
    run.last_class = kind;
    at += size;
    beyond += size - 1;
    if (kind & kSymbol) {
      symbol_waits |= run.word_begin != nullptr && !is_joiner(code);
    } else {
      is_plain &= !symbol_waits && ((kind & (kLetter | kAttached)) != 0 || is_joiner(code));
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
    run.is_plain = is_plain;
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

}  // namespace

void Measurer::State::restart_words(std::string_view text) {
  words.restart(text.size() / 8);
  long_words.restart(text.size() / 32);
  numbers.clear();
  occurrences.assign(std::max(text.size() / 16, std::size(kStopWordList)), 0);
  ends.assign(1, 0);
  text_end = text.data() + text.size();
  for (const auto word : kStopWordList) words.number(packed(word, word.data() + word.size()));  // 0 to 7
  n_named = n_named_characters = n_alphabetic = n_letters = 0;
  letter_weight = 0;
  weights.clear();
}

int64_t Measurer::State::n_stop_words() const {
  return std::count_if(occurrences.begin(), occurrences.begin() + std::size(kStopWordList),
                       [](auto n) { return n > 0; });
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
    if (run.is_plain || run.classes & kUnspaced) line.plain_weight += run.weight;
    line.has_cells |= std::string_view(run.begin, run.end) == "|";
    line.added_length += run.added_length;
    line.has_unspaced |= (run.classes & kUnspaced) != 0;
    ends_sentence = sentence_end(run);
    line.sentences += run.wide_stops + (ends_sentence == 1);
    at = run.end;
  }
  line.ends_sentence = ends_sentence != 0;
  line.sentences += line.runs > 0 && !line.ends_sentence;
  return line;
}

template Line Measurer::State::read_line<true>(std::string_view text);
template Line Measurer::State::read_line<false>(std::string_view text);

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

}  // namespace webtext::signals
