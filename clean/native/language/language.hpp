// Language identification: py3langid's naive Bayes model over byte n-grams, which an automaton finds.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace webtext::language {

// The tables of a model, owned by the caller. A state's row of 256 moves begins at rows[state].
struct Tables {
  std::span<const uint32_t> moves;
  std::span<const uint32_t> rows;
  std::span<const int32_t> outputs;    // by state: the feature found on reaching it, or -1
  std::span<const float> weights;      // [feature][class]
  std::span<const double> priors;      // by class
  std::span<const int32_t> languages;  // by class: a language may have one class for each of its scripts
};

struct Answer {
  int32_t language = -1;  // -1: the text has no known feature
  double probability = 0;
};

// Returns whether all sizes match and every number used as an index is in range.
bool is_sound(const Tables& tables);

// Detects the language of one text at a time; not thread-safe.
class Detector {
 public:
  explicit Detector(const Tables& tables);
  Answer detect(std::string_view text);

 private:
  struct State {
    uint32_t row;
    int32_t feature;
  };

  size_t depth() const;
  uint32_t move(uint32_t row, char letter, int32_t& feature) const;
  void count(std::string_view text);

  Tables tables_;
  std::vector<State> states_;       // rows and outputs interleaved: one memory access instead of two
  std::vector<double> logarithms_;  // log(1 + count)
  size_t depth_ = 0;
  std::vector<int32_t> found_;     // by byte of the text: the feature that ends there, or -1
  std::vector<int32_t> counts_;    // by feature; all 0 between texts
  std::vector<int32_t> features_;  // the features of the text, in order of first occurrence
  std::vector<double> scores_, probabilities_;
};

}  // namespace webtext::language
