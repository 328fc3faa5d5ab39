// Lines and paragraphs: bullets, punctuation, lengths, C4's rules, repeats.
#include "signals/measurer.hpp"

namespace webtext::signals {
namespace {

constexpr int64_t kShortLine = 30, kFewestWords = 3;  // as in tests/reference/signals.py
constexpr int64_t kProseWords = 6, kSentenceWords = 4, kPlainTenths = 7;
constexpr size_t kLongestWord = 1000;
constexpr uint32_t kBullet = 0x2022;

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

}  // namespace

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

void Measurer::State::judge_line(const Line& line) {
  const std::string_view stripped(line.first, line.last);
  const char* end = line.text.data() + line.text.size();
  n_bullets += *line.first == '-' || decode(line.first, end).code == kBullet;
  n_ellipses += stripped.ends_with(kDots) || stripped.ends_with(kEllipsis);
  n_punctuated += (class_of(decode(last_character(line.text.data(), end), end).code) & kTerminal) != 0;
  n_short += kWord * static_cast<int64_t>(line.characters) + line.added_length <= kWord * kShortLine;
  const bool is_prose = line.weight >= kWord * (line.ends_sentence ? kSentenceWords : kProseWords) &&
                        10 * line.plain_weight >= kPlainTenths * line.weight && !line.has_cells;
  if (is_prose) n_prose_characters += line.characters;
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

}  // namespace webtext::signals
