#include "superword_joining.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace webtext {
namespace {

// What the last character of a token is: a letter, certainly none, or the rest of one that begins in another token.
enum class Tail { kLetter, kOther, kUnknown };

Tail tail_of(std::string_view bytes) {
  const auto* begin = reinterpret_cast<const Byte*>(bytes.data());
  const Byte* end = begin + bytes.size();
  for (std::ptrdiff_t n = 1; n <= 4 && n <= end - begin; ++n) {
    if ((end[-n] & 0xC0) == 0x80) continue;
    const Character last = character_at(ClassTable::of(kUnicodeVersion), end - n, end);
    if (last.n_bytes != n) return Tail::kOther;
    return last.kind == CharClass::kLetter ? Tail::kLetter : Tail::kOther;
  }
  return bytes.size() >= 4 ? Tail::kOther : Tail::kUnknown;
}

// How a token that goes on with a run begins: a blank or apostrophe, and then a letter if `is_word`, or perhaps one.
struct Head {
  bool goes_on, is_word;
};

Head head_of(std::string_view bytes) {
  if (bytes.empty() || (bytes[0] != ' ' && bytes[0] != '\'')) return {false, false};
  if (bytes.size() == 1) return {true, false};
  const auto* second = reinterpret_cast<const Byte*>(bytes.data()) + 1;
  const Character character = character_at(ClassTable::of(kUnicodeVersion), second, second + bytes.size() - 1);
  if (character.kind == CharClass::kLetter) return {true, true};
  return {*second >= 0xC2 && character.n_bytes == 1, false};  // a letter that is cut off, perhaps
}

}  // namespace

std::optional<SuperwordJoiner> SuperwordJoiner::from(const std::vector<Merge>& merges, std::uint32_t n_tokens,
                                                     const BytesOf& bytes_of) {
  SuperwordJoiner joiner;
  joiner.roles_.resize(n_tokens);
  joiner.last_.resize(n_tokens);
  joiner.first_.resize(n_tokens);
  for (std::uint32_t token = 0; token < n_tokens; ++token) {
    const std::string_view bytes = bytes_of(token);
    if (bytes.empty()) continue;
    joiner.last_[token] = static_cast<std::uint8_t>(bytes.back());
    joiner.first_[token] = bytes[0] == ' ' ? kBlank : bytes[0] == '\'' ? kApostrophe : 0;
  }
  if (!joiner.learn(merges, bytes_of)) return std::nullopt;
  return joiner;
}

bool SuperwordJoiner::learn(const std::vector<Merge>& merges, const BytesOf& bytes_of) {
  // The words that a superword begins and ends with; of any other token, that token.
  std::vector<std::uint32_t> first_word(roles_.size()), last_word(roles_.size());
  std::vector<bool> is_superword(roles_.size());
  for (std::uint32_t token = 0; token < roles_.size(); ++token) first_word[token] = last_word[token] = token;
  bool has_superwords = false;
  for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right, token] = merges[rank];
    const Head head = head_of(bytes_of(right));
    const Tail tail = tail_of(bytes_of(left));
    if (head.goes_on && head.is_word && tail == Tail::kLetter) {
      has_superwords = is_superword[token] = true;
      first_word[token] = first_word[left];
      last_word[token] = last_word[right];
      rules_.add(left, right, {rank, token});
      borders_.add(last_word[left], first_word[right], {0, 0});
      roles_[last_word[left]] |= kLeft;
      roles_[first_word[right]] |= kRight;
      continue;
    }
    if (has_superwords || is_superword[left] || is_superword[right]) return false;  // an ordinary merge among the last
    if (head.goes_on && tail == Tail::kLetter) return false;  // half a word would go over a border
    if (head.goes_on && tail == Tail::kUnknown) {
      hazards_[last_[left]] |= first_[right];
      has_hazards_ = true;
    }
  }
  return true;
}

template <class Token>
std::optional<std::size_t> SuperwordJoiner::join(Token* tokens, std::size_t n, Scratch& scratch) const {
  if (has_hazards_) {
    for (std::size_t at = 0; at + 1 < n; ++at) {
      if (hazards_[last_[tokens[at]]] & first_[tokens[at + 1]]) return std::nullopt;
    }
  }
  std::size_t kept = 0;
  for (std::size_t at = 0; at < n;) {
    std::size_t end = at + 1;
    while (end < n && !is_border_kept(tokens[end - 1], tokens[end])) ++end;
    if (end == at + 1) {
      tokens[kept++] = tokens[at++];
      continue;
    }
    scratch.tokens.assign(tokens + at, tokens + end);
    merge(scratch);
    kept = static_cast<std::size_t>(std::copy(scratch.tokens.begin(), scratch.tokens.end(), tokens + kept) - tokens);
    at = end;
  }
  return kept;
}

// The lowest rank first, the leftmost among equals: a linked list of tokens and a heap of (rank, place), whose entries
// are skipped when their pair has changed.
void SuperwordJoiner::merge(Scratch& scratch) const {
  auto& [tokens, before, after, next, heap] = scratch;
  const auto n = static_cast<std::uint32_t>(tokens.size());
  if (n == 2) {
    if (const Rule rule = rules_(tokens[0], tokens[1]); rule.rank != Rule::kNever) tokens.assign(1, rule.token);
    return;
  }
  before.resize(n);
  after.resize(n);
  next.assign(n, Rule{});
  heap.clear();
  const auto note = [&](std::uint32_t at) {
    next[at] = after[at] < n ? rules_(tokens[at], tokens[after[at]]) : Rule{};
    if (next[at].rank == Rule::kNever) return;
    heap.push_back(static_cast<std::uint64_t>(next[at].rank) << 32 | at);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (std::uint32_t at = 0; at < n; ++at) before[at] = at - 1, after[at] = at + 1;
  for (std::uint32_t at = 0; at < n; ++at) note(at);
  while (!heap.empty()) {
    const std::uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    if (next[at].rank != top >> 32) continue;
    const std::uint32_t gone = after[at];
    tokens[at] = next[at].token;
    after[at] = after[gone];
    if (after[at] < n) before[after[at]] = at;
    next[gone] = Rule{};
    note(at);
    if (at > 0) note(before[at]);
  }
  std::size_t kept = 0;
  for (std::uint32_t at = 0; at < n; at = after[at]) tokens[kept++] = tokens[at];
  tokens.resize(kept);
}

template std::optional<std::size_t> SuperwordJoiner::join(std::uint16_t*, std::size_t, Scratch&) const;
template std::optional<std::size_t> SuperwordJoiner::join(std::uint32_t*, std::size_t, Scratch&) const;

}  // namespace webtext
