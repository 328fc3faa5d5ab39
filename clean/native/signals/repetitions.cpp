// Repeated n-grams of words.
//
// They cost little, because an n-gram can only repeat if both of its (n-1)-grams repeat. So each size visits only the
// places that the previous size left, and a pair of numbers identifies an n-gram exactly. In prose few places are left
// at four words.
#include "signals/measurer.hpp"

namespace webtext::signals {

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

}  // namespace webtext::signals
