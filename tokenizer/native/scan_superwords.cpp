#include "scan_superwords.hpp"

#include "scan_gpt2.hpp"

namespace webtext {

const Scanner& scanner_of_words() {
  static const Scanner scanner("gpt2", kUnicodeVersion);
  return scanner;
}

WordKind word_kind(const ClassTable& classes, const Byte* begin, const Byte* end) {
  const bool is_next = *begin == ' ' || *begin == '\'';
  const Byte* first = begin + is_next;
  if (first == end || character_at(classes, first, end).kind != CharClass::kLetter) return WordKind::kNone;
  return is_next ? WordKind::kNext : WordKind::kFirst;
}

std::size_t cut_superwords(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                           std::size_t max) {
  static const Scanner::Cut cut_words = gpt2_cut();
  constexpr std::size_t kWindow = 256;
  std::uint32_t words[kWindow];
  std::size_t n_runs = 0;
  std::uint32_t last = 0;  // the end of the run that may go on
  bool is_open = false;    // it does so with a word of kind kNext
  for (const Byte* at = begin; at < end;) {
    const std::size_t n_words = cut_words(classes, at, end, words, kWindow);
    const Byte* word = at;
    for (std::size_t index = 0; index < n_words; ++index) {
      const Byte* after = at + words[index];
      const WordKind kind = word_kind(classes, word, after);
      if (last > 0 && !(is_open && kind == WordKind::kNext)) {
        ends[n_runs++] = last;
        if (n_runs == max) return n_runs;
      }
      if (after - begin > kFarthestEnd) {
        if (n_runs == 0) throw std::length_error("a piece of 4 GiB or more");
        return n_runs;
      }
      is_open = kind != WordKind::kNone;
      last = static_cast<std::uint32_t>(after - begin);
      word = after;
    }
    at = word;
  }
  if (last > 0) ends[n_runs++] = last;
  return n_runs;
}

}  // namespace webtext
