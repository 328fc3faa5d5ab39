#include "superwords.hpp"

#include <algorithm>
#include <functional>

#include "hashing.hpp"
#include "threads.hpp"

namespace webtext {

std::size_t WordPairCounts::find(Pair pair) const {
  std::size_t at = kTableHash.mix(pair, 0) & (slots_.size() - 1);
  while (slots_[at].count && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return at;
}

std::int64_t WordPairCounts::operator[](Pair pair) const { return slots_.empty() ? 0 : slots_[find(pair)].count; }

void WordPairCounts::add(Pair pair, std::int64_t count) {
  if (2 * (n_pairs_ + 1) > slots_.size()) {
    if (n_pairs_ < kMaxPairs) {
      rebuild(std::max<std::size_t>(1 << 12, 2 * slots_.size()), 1);
    } else {
      const std::int64_t min_count = count_of_nth(kMaxPairs / 2) + 1;
      error_ += min_count - 1;
      rebuild(slots_.size(), min_count);
    }
  }
  Slot& slot = slots_[find(pair)];
  n_pairs_ += slot.count == 0;
  slot.pair = pair;
  slot.count += count;
}

void WordPairCounts::add_all(WordPairCounts other) {
  // In order: which pairs are forgotten depends on those that came before.
  std::sort(other.slots_.begin(), other.slots_.end(),
            [](const Slot& left, const Slot& right) { return left.pair < right.pair; });
  for (const Slot& slot : other.slots_) {
    if (slot.count) add(slot.pair, slot.count);
  }
  error_ += other.error_;
}

std::int64_t WordPairCounts::count_of_nth(std::size_t n) const {
  if (n == 0 || n > n_pairs_) return 0;
  std::vector<std::int64_t> counts;
  for (const Slot& slot : slots_) {
    if (slot.count) counts.push_back(slot.count);
  }
  const auto nth = counts.begin() + static_cast<std::ptrdiff_t>(n - 1);
  std::nth_element(counts.begin(), nth, counts.end(), std::greater<>());
  return *nth;
}

void WordPairCounts::rebuild(std::size_t n_slots, std::int64_t min_count) {
  std::vector<Slot> old(n_slots);
  old.swap(slots_);
  n_pairs_ = 0;
  for (const Slot& slot : old) {
    if (slot.count < min_count) continue;
    slots_[find(slot.pair)] = slot;
    ++n_pairs_;
  }
}

namespace {

bool is_word(const std::string& bytes) {
  const auto* begin = reinterpret_cast<const Byte*>(bytes.data());
  const Byte* end = begin + bytes.size();
  std::uint32_t ends[1];
  return begin < end && scanner_of_words().cut(begin, end, ends, 1) == 1 && ends[0] == bytes.size() &&
         word_kind(ClassTable::of(kUnicodeVersion), begin, end) != WordKind::kNone;
}

}  // namespace

SuperwordCounts::SuperwordCounts(const std::vector<std::string>& words) {
  std::size_t n_slots = 1 << 12;
  while (n_slots < 4 * words.size()) n_slots *= 2;
  words_.resize(n_slots);
  for (std::uint32_t token = 0; token < words.size(); ++token) {
    if (!is_word(words[token])) continue;
    const std::uint64_t hash =
        kTableHash.bytes(reinterpret_cast<const Byte*>(words[token].data()), words[token].size());
    std::size_t at = hash & (n_slots - 1);
    while (words_[at].token != kNone) at = (at + 1) & (n_slots - 1);
    words_[at] = {words[token], hash, token};
  }
}

const SuperwordCounts::Word* SuperwordCounts::find(const Byte* bytes, std::size_t n_bytes) const {
  const std::uint64_t hash = kTableHash.bytes(bytes, n_bytes);
  const std::string_view wanted(reinterpret_cast<const char*>(bytes), n_bytes);
  for (std::size_t at = hash & (words_.size() - 1); words_[at].token != kNone; at = (at + 1) & (words_.size() - 1)) {
    if (words_[at].hash == hash && words_[at].bytes == wanted) return &words_[at];
  }
  return nullptr;
}

// Calls use(piece, n_bytes, token, before): the token is kNone when the piece is no word, `before` is the token of the
// word that it goes on from, else kNone.
template <class Use>
void SuperwordCounts::each_word(std::string_view text, const Use& use) const {
  const auto* begin = reinterpret_cast<const Byte*>(text.data());
  std::uint32_t before = kNone;
  scanner_of_words().each_piece(begin, begin + text.size(), [&](const Byte* piece, std::size_t n_bytes) {
    const Word* word = find(piece, n_bytes);
    const std::uint32_t token = word ? word->token : kNone;
    const bool goes_on = word && (*piece == ' ' || *piece == '\'');
    use(piece, n_bytes, token, goes_on ? before : kNone);
    before = token;
  });
}

namespace {

WordPairCounts::Pair pair_of(std::uint32_t left, std::uint32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | right;
}

}  // namespace

void SuperwordCounts::count_pairs(const std::vector<std::string_view>& texts, std::int64_t weight, unsigned n_threads) {
  std::vector<WordPairCounts> parts(std::max(1u, n_threads) - 1);
  const std::size_t n = parts.size() + 1;
  in_threads(n, [&](std::size_t thread) {
    WordPairCounts& pairs = thread ? parts[thread - 1] : pairs_;
    for (std::size_t text = thread; text < texts.size(); text += n) {
      each_word(texts[text], [&](const Byte*, std::size_t, std::uint32_t token, std::uint32_t before) {
        if (before != kNone) pairs.add(pair_of(before, token), weight);
      });
    }
  });
  for (WordPairCounts& part : parts) pairs_.add_all(std::move(part));
}

void SuperwordCounts::count_runs(const std::vector<std::string_view>& texts, std::int64_t weight, unsigned n_threads,
                                 std::int64_t min_count, PieceCounts& runs) const {
  std::vector<std::vector<TextShare>> found(std::max(1u, n_threads));
  in_threads(found.size(), [&](std::size_t thread) {
    for (std::size_t text = thread; text < texts.size(); text += found.size()) {
      find_runs(texts[text], min_count, found[thread]);
    }
  });
  for (const auto& part : found) {
    for (const auto [begin, end] : part) runs.add(begin, static_cast<std::size_t>(end - begin), weight);
  }
}

void SuperwordCounts::find_runs(std::string_view text, std::int64_t min_count, std::vector<TextShare>& runs) const {
  TextShare run{nullptr, nullptr};
  std::size_t n_words = 0;
  const auto finish = [&] {
    if (n_words > 1) runs.push_back(run);
    n_words = 0;
  };
  each_word(text, [&](const Byte* piece, std::size_t n_bytes, std::uint32_t token, std::uint32_t before) {
    const bool goes_on = before != kNone && pairs_[pair_of(before, token)] >= min_count;
    if (!goes_on) finish();
    if (token == kNone) return;
    if (!goes_on) run.begin = piece;
    run.end = piece + n_bytes;
    ++n_words;
  });
  finish();
}

void SuperwordCounts::encode(const Byte* bytes, std::size_t n_bytes, std::vector<std::uint32_t>& tokens) const {
  scanner_of_words().each_piece(bytes, bytes + n_bytes,
                                [&](const Byte* piece, std::size_t n) { tokens.push_back(find(piece, n)->token); });
}

}  // namespace webtext
