#include "train/trainer.hpp"

#include <array>
#include <chrono>
#include <optional>

#include "train/candidates.hpp"
#include "train/place_lists.hpp"
#include "train/selection.hpp"
#include "train/word_file.hpp"
#include "train/words.hpp"

namespace webtext {
namespace {

// Reports progress at its first look at the clock, and then about every ten milliseconds.
class Watch {
 public:
  explicit Watch(const Progress& progress) : progress_(progress) {}

  void work(std::size_t amount) {
    if ((done_ += amount) < kBetweenLooks) return;
    done_ = 0;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(10)) return;
    last_ = now;
    progress_(n_merges, loaded);
  }

  std::size_t n_merges = 0;
  double loaded = 0;

 private:
  static constexpr std::size_t kBetweenLooks = 1 << 14;  // steps between looks at the clock: a few hundred microseconds

  const Progress& progress_;
  std::size_t done_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now() - std::chrono::seconds(1);
};

// The number of a pair by its tokens: an open-addressing table of numbers, and an array for the pairs of the first 256.
class PairIndex {
 public:
  // Returns the pair's number; adds a new pair to `pairs`.
  std::uint32_t operator()(Growing<Pair>& pairs, std::uint32_t left, std::uint32_t right) {
    const bool is_small = (left | right) < 256;
    std::uint32_t& known = is_small ? small_[left << 8 | right] : slots_[slot(pairs, left, right)];
    if (known) return known;
    const auto number = known = static_cast<std::uint32_t>(pairs.size());
    pairs.push_back({0, left, right});
    if (!is_small && 2 * ++n_used_ > slots_.size()) {
      slots_.assign(2 * slots_.size(), 0);
      for (std::uint32_t pair = 1; pair <= number; ++pair) {
        const auto [count, first, second] = pairs[pair];
        if ((first | second) >= 256) slots_[slot(pairs, first, second)] = pair;
      }
    }
    return number;
  }

 private:
  std::size_t slot(const Growing<Pair>& pairs, std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t hash = kTableHash.mix(static_cast<std::uint64_t>(left) << 32 | right, 0);
    return probe(hash, slots_.size(), [&](std::size_t at) {
      return !slots_[at] || (pairs[slots_[at]].left == left && pairs[slots_[at]].right == right);
    });
  }

  std::vector<std::uint32_t> small_ = std::vector<std::uint32_t>(1 << 16);
  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(1 << 12);
  std::size_t n_used_ = 0;
};

// A pair's number is its index in `pairs_`; 0 is none. Each place stores the number of its pair. All pairs next to a
// merge are new because its token is new, so a table by neighbour finds their numbers, and only the initial pairs are
// looked up by their tokens. For the same reason, after the step that creates a pair its count only falls, and all its
// places are known. (A hash table of pairs with lists of words took four times as long and three times the memory; two
// threads were 1.1 times as fast, because a merge has only some 40 places to divide.)
class Trainer {
 public:
  Trainer(TokenTable& tokens, const Goal& goal, Watch& watch) : tokens_(tokens), goal_(goal), watch_(watch) {
    pairs_.push_back({});
  }

  // All pieces are passed twice: first for their sizes, then for their tokens.
  void make_room(const Word& piece, std::int64_t count) {
    std::size_t n_bytes = 0;
    for (const std::uint32_t token : piece) n_bytes += tokens_.n_bytes(token);
    words_.make_room(count, n_bytes);
  }
  void room_is_made() { words_.room_is_made(); }

  void add_piece(const Word& piece, std::int64_t count) {
    words_.begin(count);
    for (std::size_t index = 0; index + 1 < piece.size(); ++index) {
      const std::uint32_t pair = index_(pairs_, piece[index], piece[index + 1]);
      n_seen_.resize(pairs_.size() - 1);
      ++n_seen_[pair - 1];
      pairs_[pair].count += count;
      words_.append(pair, tokens_.n_bytes(piece[index]));
    }
    words_.append(0, tokens_.n_bytes(piece.back()));
  }

  // Appends merges until none is left; returns false if it stops before because it takes more than `max_memory` bytes.
  bool learn(std::vector<Merge>& merges, std::size_t max_memory) {
    queue_first_pairs();
    max_memory = std::max(max_memory, memory() / 2 * 3);  // whatever was loaded, many merges follow
    while (tokens_.size() < goal_.n_tokens) {
      const std::uint32_t best = queue_.pop(pairs_);
      const auto [count, left, right] = pairs_[best];
      if (count == 0 || count < goal_.min_frequency) break;
      const std::optional<std::uint32_t> token = tokens_.join(left, right);
      if (!token) continue;
      merges.emplace_back(left, right);
      watch_.n_merges = merges.size();
      merge(best, *token);
      if (memory() > max_memory) return false;
    }
    return true;
  }

  // Calls use(word, count) for every piece that still has pairs.
  template <class Use>
  void each_word(const Use& use) const {
    Word word;
    std::uint32_t last = 0;
    for (std::uint32_t at = 1; at < words_.size(); ++at) {
      const std::uint32_t pair = words_.slot(at);
      if (pair & Words::kMark) continue;
      if (pair) {
        word.push_back(pairs_[pair].left);
        last = pairs_[pair].right;
      } else if (!word.empty()) {
        word.push_back(last);
        use(word, words_.count(at));
        word.clear();
      }
    }
  }

 private:
  struct Seen {
    std::uint32_t pair, at;
  };

  static constexpr std::size_t kAhead = 16, kBatch = 64;

  void queue_first_pairs() {
    begin_lists(1);
    for (std::uint32_t at = 1; at < words_.size(); ++at) {
      const std::uint32_t pair = words_.slot(at);
      if (pair && !(pair & Words::kMark) && wanted(pair)) lists_.add(pair, at);
      watch_.work(1);
    }
    queue_new(1);
  }

  void merge(std::uint32_t pair, std::uint32_t token) {
    const std::uint32_t n_left = tokens_.n_bytes(pairs_[pair].left), n_bytes = tokens_.n_bytes(token);
    begin_step(pair, token);
    for (std::size_t begin = 0; begin < places_.size(); begin += kBatch) {
      const std::size_t end = std::min(begin + kBatch, places_.size());
      for (std::size_t index = begin; index < end; ++index) {  // prefetch all memory before using any: a fifth faster
        if (index + kAhead < places_.size()) __builtin_prefetch(&words_.slot(places_[index + kAhead]));
        const std::uint32_t at = places_[index];
        if (words_.slot(at) != pair) continue;
        __builtin_prefetch(&pairs_[words_.slot(words_.before(at))]);
        __builtin_prefetch(&pairs_[words_.slot(at + n_left)]);
      }
      for (std::size_t index = begin; index < end; ++index) {
        if (words_.slot(places_[index]) == pair) merge_at(places_[index], n_left, n_bytes, token);
      }
      watch_.work(end - begin);
    }
    begin_lists(first_);
    for (const Seen& seen : seen_) {
      if (n_seen_[seen.pair - first_]) lists_.add(seen.pair, seen.at);
    }
    queue_new(first_);
  }

  void merge_at(std::uint32_t at, std::uint32_t n_left, std::uint32_t n_bytes, std::uint32_t token) {
    const std::int64_t count = words_.count(at);
    const std::uint32_t before = words_.before(at), second = at + n_left;
    if (const std::uint32_t gone = words_.slot(before)) {
      pairs_[gone].count -= count;
      const std::uint32_t left = pairs_[gone].left;
      words_.set_pair(before, see(left_of_[left], left, token, before, count));
    }
    std::uint32_t after = words_.slot(second);
    if (after) {
      pairs_[after].count -= count;
      const std::uint32_t right = pairs_[after].right;
      after = see(right_of_[right], token, right, at, count);
    }
    words_.join(at, second, n_bytes, after);
  }

  void begin_step(std::uint32_t pair, std::uint32_t token) {
    places_.clear();
    lists_.take(pair, places_);
    first_ = static_cast<std::uint32_t>(pairs_.size());
    if (left_of_.size() <= token) {
      left_of_.resize(2 * (token + std::size_t{1}));  // its new entries are 0: below any step's first pair
      right_of_.resize(left_of_.size());
    }
    seen_.clear();
    n_seen_.clear();
  }

  // Counts a pair with the token of this step at a place. `number` is the neighbour's entry in left_of_ or right_of_.
  std::uint32_t see(std::uint32_t& number, std::uint32_t left, std::uint32_t right, std::uint32_t at,
                    std::int64_t count) {
    if (number < first_) {
      number = static_cast<std::uint32_t>(pairs_.size());
      if (number >= Words::kMark) throw std::length_error("2^31 pairs of tokens");
      pairs_.push_back({0, left, right});
      n_seen_.push_back(0);
    }
    pairs_[number].count += count;
    seen_.push_back({number, at});
    ++n_seen_[number - first_];
    return number;
  }

  // Begins the lists of this step's pairs. A pair that may never merge gets none and isn't queued.
  void begin_lists(std::uint32_t first) {
    for (std::size_t index = 0; index < n_seen_.size(); ++index) {
      if (!wanted(static_cast<std::uint32_t>(first + index))) n_seen_[index] = 0;
    }
    lists_.begin(first, n_seen_, words_);
  }

  void queue_new(std::uint32_t first) {
    for (std::uint32_t pair = first; pair < pairs_.size(); ++pair) {
      if (n_seen_[pair - first]) queue_.push(pairs_, pair);
    }
  }

  bool wanted(std::uint32_t number) const {
    const auto [count, left, right] = pairs_[number];
    return count > 0 && count >= goal_.min_frequency && may_merge(tokens_, goal_, left, right);
  }

  std::size_t memory() const {
    const std::size_t n_numbers =
        places_.capacity() + left_of_.capacity() + right_of_.capacity() + n_seen_.capacity() + 2 * seen_.capacity();
    return words_.memory() + pairs_.memory() + lists_.memory() + queue_.memory() + 4 * n_numbers;
  }

  TokenTable& tokens_;
  Goal goal_;
  Watch& watch_;
  Words words_;
  Growing<Pair> pairs_;
  PairIndex index_;  // of the initial pairs
  PlaceLists lists_;
  Candidates queue_;

  // The current step, which is one merge.
  std::vector<std::uint32_t> places_;              // where to merge
  std::vector<std::uint32_t> left_of_, right_of_;  // by neighbour: its pair with the new token, valid from `first_` on
  std::vector<Seen> seen_;
  std::vector<std::uint32_t> n_seen_;  // by pair, from `first_` on
  std::uint32_t first_ = 1;            // the first pair of the step
};

}  // namespace

TokenTable byte_tokens() {
  TokenTable tokens;
  for (const Byte byte : byte_order()) tokens.add(view_of(&byte, 1));
  return tokens;
}

EncodePiece encode_bytes() {
  std::array<std::uint32_t, 256> token_of;
  for (std::uint32_t token = 0; token < 256; ++token) token_of[byte_order()[token]] = token;
  return [token_of](std::string_view piece, std::vector<std::uint32_t>& tokens) {
    for (const char byte : piece) tokens.push_back(token_of[static_cast<Byte>(byte)]);
  };
}

std::vector<Merge> train_merges(PieceCounts& pieces, TokenTable tokens, const EncodePiece& encode, const Goal& goal,
                                const Progress& progress) {
  const std::size_t max_memory = pieces.max_memory();
  const std::size_t at_first = std::min(max_memory / 2, std::size_t{4} << 30);  // so that places have 31 bits
  pieces.shrink(max_memory / 8);
  std::size_t n_bytes = 0;
  pieces.each([&](std::string_view piece, std::int64_t) { n_bytes += piece.size(); });
  EachWord source = [&](const UseWord& use) {
    Word word;
    pieces.each([&](std::string_view piece, std::int64_t count) {
      word.clear();
      encode(piece, word);
      if (word.size() > 1) use(word, count);
    });
  };
  Watch watch(progress);
  const EachWord each_word = [&](const UseWord& use) {
    source([&](const Word& word, std::int64_t count) {
      watch.work(word.size());
      use(word, count);
    });
  };
  bool is_all = Selection::memory_for(n_bytes, n_bytes, std::size_t{tokens.size()} * tokens.size()) <= at_first;
  std::vector<Merge> merges;
  for (std::int64_t below = std::numeric_limits<std::int64_t>::max();;) {
    Selection selected = is_all ? Selection() : Selection(each_word, at_first, below, tokens, goal);
    const std::int64_t threshold = std::max(goal.min_frequency, selected.threshold());
    Trainer trainer(tokens, {goal.n_tokens, threshold, goal.max_token_length}, watch);
    each_word([&](const Word& word, std::int64_t count) {
      if (selected(word)) trainer.make_room(word, count);
    });
    trainer.room_is_made();
    std::shared_ptr<WordFile> rest;
    const auto keep = [&](const Word& word, std::int64_t count) {
      if (!rest) rest = std::make_shared<WordFile>(pieces.folder());
      rest->add(word, count);
    };
    double n_done = 0;
    each_word([&](const Word& word, std::int64_t count) {
      for (const std::uint32_t token : word) n_done += tokens.n_bytes(token);
      watch.loaded = std::max(watch.loaded, std::min(n_done / static_cast<double>(n_bytes), 1.0));
      selected(word) ? trainer.add_piece(word, count) : keep(word, count);
    });
    selected = Selection();  // frees its memory
    const bool is_done = trainer.learn(merges, max_memory / 4 * 3);
    if (tokens.size() >= goal.n_tokens || (is_done && threshold == goal.min_frequency)) return merges;
    trainer.each_word(keep);
    if (rest) rest->finish();
    source = [rest](const UseWord& use) {
      if (rest) rest->each(use);
    };
    if (is_done) below = threshold;
    is_all = false;
  }
}

}  // namespace webtext
