// Which language a text is in: a naive Bayes model over byte n-grams that an automaton finds (py3langid's).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace webtext::language {

// The tables of a model; they belong to the caller. A state's row of 256 moves begins at rows[state].
struct Tables {
  std::span<const uint32_t> moves;
  std::span<const uint32_t> rows;
  std::span<const int32_t> outputs;    // the feature that a state has found, or -1
  std::span<const float> weights;      // [feature][class]
  std::span<const double> priors;      // of a class
  std::span<const int32_t> languages;  // of a class: a language may have one class for each of its scripts
};

struct Answer {
  int32_t language = -1;  // -1: nothing in the text tells
  double probability = 0;
};

// Whether every number that is used as a place is one.
bool is_sound(const Tables& tables);

// Judges one text after the other; not to be shared between threads.
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
  std::vector<State> states_;       // rows and outputs side by side: one look into memory instead of two
  std::vector<double> logarithms_;  // log(1 + count)
  size_t depth_ = 0;
  std::vector<int32_t> found_;     // by byte of the text: the feature that ends there, or -1
  std::vector<int32_t> counts_;    // by feature; all 0 between two texts
  std::vector<int32_t> features_;  // those of the text, in the order in which they first came
  std::vector<double> scores_, probabilities_;
};

}  // namespace webtext::language
