// The pass over a text: lines with their words, then duplicate lines and paragraphs, then n-grams of words.
#include <limits>

#include "signals/measurer.hpp"

namespace webtext::signals {

constexpr size_t kKeptMemory = 64 << 20;  // tables above this size are freed after a text

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
  counts[kStopWords] = state.n_stop_words();
  auto& ratios = state.values.ratios;
  const auto weight = [](size_t words) { return static_cast<double>(kWord * static_cast<int64_t>(words)); };
  const auto letters = static_cast<double>(state.letter_weight);
  const double words = weight(state.numbers.size() - state.n_letters) + letters;
  const Repeats &lines = state.lines, &paragraphs = state.paragraphs;
  ratios[kMeanWordLength] = letters > weight(state.n_named) ? std::numeric_limits<double>::quiet_NaN()
                                                            : ratio(state.n_named_characters, state.n_named);
  ratios[kHashWords] = ratio(kWord * hashes, words);
  ratios[kEllipsisWords] = ratio(weight(ellipses), words);
  ratios[kAlphabeticWords] = ratio(weight(state.n_alphabetic) + letters, words);
  ratios[kBulletLines] = ratio(state.n_bullets, newlines + 1);
  ratios[kEllipsisLines] = ratio(state.n_ellipses, newlines + 1);
  ratios[kPunctuatedLines] = ratio(state.n_punctuated, lines.n);
  ratios[kShortLines] = ratio(state.n_short, lines.n);
  ratios[kProseCharacters] = ratio(state.n_prose_characters, characters - newlines);
  ratios[kNewlineWords] = ratio(kWord * newlines, words);
  ratios[kDuplicateLines] = ratio(lines.repeated, lines.n);
  ratios[kDuplicateLineCharacters] = ratio(lines.characters, characters);
  ratios[kDuplicateCharacters] = ratio(lines.characters, characters - newlines);
  ratios[kDuplicateParagraphs] = ratio(paragraphs.repeated, paragraphs.n);
  ratios[kDuplicateParagraphCharacters] = ratio(paragraphs.characters, characters);
  state.read_ngrams(characters);
  const Values values = state.values;
  state.release_memory();
  return values;
}

void Measurer::State::restart(std::string_view text) {
  values = {};
  restart_words(text);
  lines.restart(text.size() / 64);
  paragraphs.restart(text.size() / 256);
  n_bullets = n_ellipses = n_punctuated = n_short = n_prose_characters = 0;
  has_phrases = phrases_in(text) != 0;
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
