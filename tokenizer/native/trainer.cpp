#include "trainer.hpp"

#include <algorithm>
#include <queue>
#include <string>
#include <unordered_map>

namespace webtext {
namespace {

using Pair = std::uint64_t;  // left << 32 | right: orders as (left, right)

Pair make_pair(std::uint32_t left, std::uint32_t right) { return static_cast<Pair>(left) << 32 | right; }

// Pair -> index of its count; never shrinks.
class PairIndex {
 public:
  std::uint32_t operator[](Pair pair) {
    if (2 * (pairs_.size() + 1) > slots_.size()) grow();
    std::uint32_t& slot = find(pair);
    if (slot == kEmpty) {
      slot = static_cast<std::uint32_t>(pairs_.size());
      pairs_.push_back(pair);
    }
    return slot;
  }

  Pair pair(std::uint32_t index) const { return pairs_[index]; }
  std::size_t size() const { return pairs_.size(); }

 private:
  static constexpr std::uint32_t kEmpty = ~0u;

  std::uint32_t& find(Pair pair) {
    std::size_t at = mix(pair, 0) & (slots_.size() - 1);
    while (slots_[at] != kEmpty && pairs_[slots_[at]] != pair) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }

  void grow() {
    slots_.assign(slots_.empty() ? std::size_t{1} << 12 : 2 * slots_.size(), kEmpty);
    for (std::uint32_t index = 0; index < pairs_.size(); ++index) find(pairs_[index]) = index;
  }

  std::vector<std::uint32_t> slots_;
  std::vector<Pair> pairs_;
};

// The distinct pieces as token sequences in one array; merging shortens them in place.
struct Words {
  std::vector<std::uint32_t> symbols;
  std::vector<std::size_t> starts;
  std::vector<std::uint32_t> lengths;
  std::vector<std::int64_t> counts;
};

Words make_words(const PieceCounts& pieces) {
  std::array<std::uint32_t, 256> token_of;
  for (std::uint32_t token = 0; token < 256; ++token) token_of[byte_order()[token]] = token;
  Words words;
  pieces.each([&](const Byte* bytes, std::size_t n_bytes, std::int64_t count) {
    if (n_bytes < 2) return;
    words.starts.push_back(words.symbols.size());
    words.lengths.push_back(static_cast<std::uint32_t>(n_bytes));
    words.counts.push_back(count);
    for (std::size_t index = 0; index < n_bytes; ++index) words.symbols.push_back(token_of[bytes[index]]);
  });
  return words;
}

// A pair in the queue with the words where it may occur. Its count may have fallen since; it is then queued anew.
struct Candidate {
  std::int64_t count;
  Pair pair;
  std::uint32_t index;   // of the pair in PairIndex
  std::uint32_t serial;  // of its list of words
};

struct LaterCandidate {
  bool operator()(const Candidate& left, const Candidate& right) const {
    if (left.count != right.count) return left.count < right.count;
    return left.pair != right.pair ? left.pair > right.pair : left.serial > right.serial;
  }
};

class Trainer {
 public:
  explicit Trainer(const PieceCounts& pieces) : words_(make_words(pieces)) {
    for (std::uint32_t word = 0; word < words_.counts.size(); ++word) {
      const std::uint32_t* symbols = &words_.symbols[words_.starts[word]];
      for (std::uint32_t at = 0; at + 1 < words_.lengths[word]; ++at) {
        change(make_pair(symbols[at], symbols[at + 1]), word, words_.counts[word]);
      }
    }
    queue_changed();
  }

  // The most frequent pair, taken off the queue; false when none occurs `min_frequency` times.
  bool next(std::int64_t min_frequency, Candidate& best) {
    while (!queue_.empty()) {
      best = queue_.top();
      queue_.pop();
      if (best.count == counts_[best.index]) return best.count >= min_frequency;
      best.count = counts_[best.index];
      queue_.push(best);
    }
    return false;
  }

  void merge(const Candidate& best, std::uint32_t token) {
    std::vector<std::uint32_t> where;
    where.swap(where_[best.serial]);
    const auto left = static_cast<std::uint32_t>(best.pair >> 32), right = static_cast<std::uint32_t>(best.pair);
    for (const std::uint32_t word : where) merge_word(word, left, right, token);
    queue_changed();
  }

 private:
  void merge_word(std::uint32_t word, std::uint32_t left, std::uint32_t right, std::uint32_t token) {
    std::uint32_t* symbols = &words_.symbols[words_.starts[word]];
    const std::uint32_t length = words_.lengths[word];
    const std::int64_t count = words_.counts[word];
    std::uint32_t kept = 0;
    for (std::uint32_t at = 0; at < length; ++kept) {
      if (at + 1 == length || symbols[at] != left || symbols[at + 1] != right) {
        symbols[kept] = symbols[at++];
        continue;
      }
      if (kept > 0) {
        change(make_pair(symbols[kept - 1], left), word, -count);
        change(make_pair(symbols[kept - 1], token), word, count);
      }
      symbols[kept] = token;
      at += 2;
      if (at < length) {
        change(make_pair(right, symbols[at]), word, -count);
        change(make_pair(token, symbols[at]), word, count);
      }
    }
    words_.lengths[word] = kept;
  }

  // Adds to a pair's count; where it grows, the word is noted as a place to look for the pair.
  void change(Pair pair, std::uint32_t word, std::int64_t amount) {
    const std::uint32_t index = pairs_[pair];
    if (index == counts_.size()) {
      counts_.push_back(0);
      noted_.emplace_back();
    }
    counts_[index] += amount;
    if (amount < 0) return;
    std::vector<std::uint32_t>& noted = noted_[index];
    if (noted.empty()) changed_.push_back(index);
    if (noted.empty() || noted.back() != word) noted.push_back(word);
  }

  void queue_changed() {
    for (const std::uint32_t index : changed_) {
      if (counts_[index] > 0) {
        queue_.push({counts_[index], pairs_.pair(index), index, static_cast<std::uint32_t>(where_.size())});
        where_.emplace_back().swap(noted_[index]);
      }
      noted_[index] = {};
    }
    changed_.clear();
  }

  Words words_;
  PairIndex pairs_;
  std::vector<std::int64_t> counts_;               // by pair
  std::vector<std::vector<std::uint32_t>> noted_;  // by pair: words where this step made it grow
  std::vector<std::uint32_t> changed_;             // pairs with noted words
  std::vector<std::vector<std::uint32_t>> where_;  // by serial of a candidate: its words
  std::priority_queue<Candidate, std::vector<Candidate>, LaterCandidate> queue_;
};

}  // namespace

std::vector<TrainedMerge> train_merges(const PieceCounts& pieces, std::size_t n_tokens, std::int64_t min_frequency,
                                       const std::function<bool(std::size_t)>& keep_going) {
  std::vector<std::string> tokens;
  std::unordered_map<std::string, std::uint32_t> token_of;
  const auto token_for = [&](std::string bytes) {
    const auto [entry, is_new] = token_of.try_emplace(bytes, static_cast<std::uint32_t>(tokens.size()));
    if (is_new) tokens.push_back(std::move(bytes));
    return entry->second;
  };
  for (const Byte byte : byte_order()) token_for(std::string(1, static_cast<char>(byte)));

  Trainer trainer(pieces);
  std::vector<TrainedMerge> merges;
  Candidate best;
  while (tokens.size() < n_tokens && keep_going(merges.size()) && trainer.next(min_frequency, best)) {
    const auto left = static_cast<std::uint32_t>(best.pair >> 32), right = static_cast<std::uint32_t>(best.pair);
    const std::uint32_t token = token_for(tokens[left] + tokens[right]);
    merges.push_back({left, right, token});
    trainer.merge(best, token);
  }
  // A pair can come up again when two merges give the same token; as in HF tokenizers, its last place counts.
  std::unordered_map<Pair, std::size_t> last;
  for (std::size_t rank = 0; rank < merges.size(); ++rank)
    last[make_pair(merges[rank].left, merges[rank].right)] = rank;
  std::vector<TrainedMerge> unique;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    if (last[make_pair(merges[rank].left, merges[rank].right)] == rank) unique.push_back(merges[rank]);
  }
  return unique;
}

}  // namespace webtext
