// Merging one piece: by scanning, by lists of positions, or in windows if it is long.
#include "encode/merging.hpp"

#include <algorithm>
#include <functional>
#include <queue>

#include "encode/encoder.hpp"

namespace webtext {
namespace {

constexpr std::size_t kLong = 64;          // bytes; below, scanning all pairs for the lowest rank is faster than lists
constexpr std::size_t kLongWindow = 4096;  // bytes
constexpr std::size_t kVeryLong = 1024;    // bytes; above, it is worth checking whether windows are allowed

}  // namespace

const std::vector<std::uint32_t>& Merger::operator()(const MergeRules& rules,
                                                     const std::array<std::uint32_t, 256>& byte_tokens,
                                                     std::string_view piece) {
  const Byte* bytes = begin_of(piece);
  const std::size_t n_bytes = piece.size();
  tokens_.resize(n_bytes);
  ranks_.resize(n_bytes);
  for (std::size_t at = 0; at < n_bytes; ++at) tokens_[at] = byte_tokens[bytes[at]];
  for (std::size_t at = 0; at + 1 < n_bytes; ++at) ranks_[at] = rules.byte_rank(bytes[at], bytes[at + 1]);
  n_bytes < kLong ? merge_by_scanning(rules) : merge_by_rank(rules);
  return tokens_;
}

// Takes quadratic time in the piece's length, but needs no lists.
void Merger::merge_by_scanning(const MergeRules& rules) {
  std::uint32_t *tokens = tokens_.data(), *ranks = ranks_.data();
  std::size_t n_tokens = tokens_.size();
  while (n_tokens > 1) {
    const std::size_t n_pairs = --n_tokens;
    std::size_t best = 0;
    for (std::size_t at = 1; at < n_pairs; ++at) best = ranks[at] < ranks[best] ? at : best;
    if (ranks[best] == Rule::kNever) {
      ++n_tokens;
      break;
    }
    tokens[best] = rules.token(ranks[best]);
    for (std::size_t at = best + 1; at < n_tokens; ++at) {
      tokens[at] = tokens[at + 1];
      ranks[at] = ranks[at + 1];  // the last rank is never read
    }
    if (best + 1 < n_tokens) ranks[best] = rules.rank(tokens[best], tokens[best + 1]);
    if (best > 0) ranks[best - 1] = rules.rank(tokens[best - 1], tokens[best]);
  }
  tokens_.resize(n_tokens);
}

// Takes linear time in the piece's length: merges all positions of the lowest rank, from left to right, then the next
// rank. This creates pairs of other ranks only, because a pair with the new token has more bytes. In some vocabularies
// one of those ranks is lower and comes first. Then a heap orders all further merges: listing the remaining positions
// again would take quadratic time and memory.
void Merger::merge_by_rank(const MergeRules& rules) {
  const auto n_tokens = static_cast<std::uint32_t>(tokens_.size());
  if (lists_.size() != rules.n_ranks()) {
    lists_.assign(rules.n_ranks(), kNone);
    filled_.assign(rules.n_ranks() / 64 + 1, 0);
    summary_.assign(filled_.size() / 64 + 1, 0);
  }
  before_.resize(n_tokens);
  after_.resize(n_tokens);
  entries_.clear();
  ranks_[n_tokens - 1] = Rule::kNever;
  for (std::uint32_t at = n_tokens; at-- > 0;) {  // backwards, so that lists begin with the leftmost position
    before_[at] = at - 1;
    after_[at] = at + 1;
    put(at);
  }
  const auto merge = [&](std::uint32_t at, const auto& list) {
    const auto renew = [&](std::uint32_t place) {
      ranks_[place] = after_[place] < n_tokens ? rules.rank(tokens_[place], tokens_[after_[place]]) : Rule::kNever;
      list(place);
    };
    const std::uint32_t gone = after_[at];
    tokens_[at] = rules.token(ranks_[at]);
    after_[at] = after_[gone];
    if (after_[at] < n_tokens) before_[after_[at]] = at;
    ranks_[gone] = Rule::kNever;
    renew(at);
    if (at > 0) renew(before_[at]);
  };
  bool is_in_order = true;  // if not, the lists are only emptied
  for (std::uint32_t rank; (rank = lowest_rank()) != kNone;) {
    take(rank);
    const auto list = [&](std::uint32_t at) {
      put(at);
      is_in_order = is_in_order && ranks_[at] > rank && entries_.size() + 2 < kNone;
    };
    for (const std::uint32_t at : places_) {
      if (is_in_order && ranks_[at] == rank) merge(at, list);  // else merged away since it was listed
    }
  }
  if (!is_in_order) {
    std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> heap;  // the rank, then the position
    const auto push = [&](std::uint32_t at) {
      if (ranks_[at] != Rule::kNever) heap.push(std::uint64_t{ranks_[at]} << 32 | at);
    };
    for (std::uint32_t at = 0; at < n_tokens; ++at) push(at);
    while (!heap.empty()) {
      const std::uint64_t first = heap.top();
      heap.pop();
      const auto at = static_cast<std::uint32_t>(first);
      if (ranks_[at] == first >> 32) merge(at, push);
    }
  }
  std::uint32_t kept = 0;
  for (std::uint32_t at = 0; at < n_tokens; at = after_[at]) tokens_[kept++] = tokens_[at];
  tokens_.resize(kept);
}

void Merger::put(std::uint32_t at) {
  const std::uint32_t rank = ranks_[at];
  if (rank == Rule::kNever) return;
  if (lists_[rank] == kNone) {
    filled_[rank >> 6] |= std::uint64_t{1} << (rank & 63);
    summary_[rank >> 12] |= std::uint64_t{1} << (rank >> 6 & 63);
  }
  entries_.push_back({at, lists_[rank]});
  lists_[rank] = static_cast<std::uint32_t>(entries_.size() - 1);
}

std::uint32_t Merger::lowest_rank() const {
  for (std::size_t index = 0; index < summary_.size(); ++index) {
    if (!summary_[index]) continue;
    const auto word =
        static_cast<std::uint32_t>(64 * index) + static_cast<std::uint32_t>(__builtin_ctzll(summary_[index]));
    return 64 * word + static_cast<std::uint32_t>(__builtin_ctzll(filled_[word]));
  }
  return kNone;
}

// Moves a rank's list to places_, in order from left to right.
void Merger::take(std::uint32_t rank) {
  places_.clear();
  for (std::uint32_t entry = lists_[rank]; entry != kNone; entry = entries_[entry].next) {
    places_.push_back(entries_[entry].at);
  }
  lists_[rank] = kNone;
  filled_[rank >> 6] &= ~(std::uint64_t{1} << (rank & 63));
  if (!filled_[rank >> 6]) summary_[rank >> 12] &= ~(std::uint64_t{1} << (rank >> 6 & 63));
  if (std::is_sorted(places_.begin(), places_.end())) return;
  std::reverse(places_.begin(), places_.end());  // positions listed by merging, in reverse order
  if (!std::is_sorted(places_.begin(), places_.end())) std::sort(places_.begin(), places_.end());
}

// Whether merging the bytes of some token produces other tokens. If not, `whole_pieces` needs no look-up.
bool Bpe::some_unreachable() const {
  Worker worker;
  for (std::uint32_t id = 0; id < is_text_.size(); ++id) {
    if (is_text_[id] && merge_bytes(worker, tokens_.bytes_of(id)).size() > 1) return true;
  }
  return false;
}

const std::vector<std::uint32_t>& Bpe::merge_bytes(Worker& worker, std::string_view piece) const {
  if (whole_pieces_) {
    if (const std::uint32_t token = tokens_.find(piece); token != TokenTable::kNone) {
      worker.scratch.assign(1, token);
      return worker.scratch;
    }
  }
  if (merge_short(piece, worker.scratch)) return worker.scratch;
  if (piece.size() > kVeryLong && is_orderly()) {
    if (merge_by_windows(worker, piece, kShortPiece) || merge_by_windows(worker, piece, kLongWindow))
      return worker.scratch;
  }
  return worker.merger(rules_, byte_tokens_, piece);
}

// Merges one piece of at most kShortPiece bytes; false if it is longer, or if there is no such function.
bool Bpe::merge_short(std::string_view piece, std::vector<std::uint32_t>& into) const {
  if (piece.size() > kShortPiece) return false;
  const auto merge = [&]<class Id>(const ShortRules<Id>& rules) {
    if (!rules.merge) return false;
    Id tokens[kShortPiece + kShortSlack];
    const PieceKey key = PieceKey::of(begin_of(piece), piece.size());
    ShortPiece<Id> merged{begin_of(piece), key.padded(), piece.size(), tokens, 0};
    rules.merge(rules, &merged, 1);
    into.assign(tokens, tokens + merged.n_tokens);
    return true;
  };
  return merge(std::get<0>(short_)) || merge(std::get<1>(short_));
}

// Merges a long piece in overlapping windows, which stay in the cache. In an orderly vocabulary, a sequence of tokens
// is the result of merging if and only if every two neighbours are the result of merging their bytes, and neighbours in
// the result for a part of a text always are. So a window can continue from the previous one if both have the same
// token at its start (github/rust-gems, crates/bpe/README.md, explains why). Returns false if they don't: a longer
// window may help. Each window advances by three quarters: half was slower for random emoji (0.12 against 0.085 s), and
// seven eighths for digits (0.063 against 0.056 s), because more windows disagree.
bool Bpe::merge_by_windows(Worker& worker, std::string_view piece, std::size_t window) const {
  if (piece.size() <= window) return false;
  std::vector<std::uint32_t>& out = worker.scratch;
  out.clear();
  std::uint32_t expected = TokenTable::kNone;
  for (std::size_t start = 0;;) {
    const std::string_view part = piece.substr(start, window);
    const bool is_short = window <= kShortPiece && merge_short(part, worker.window);
    const auto& tokens = is_short ? worker.window : worker.merger(rules_, byte_tokens_, part);
    if (start > 0 && tokens[0] != expected) return false;
    if (start + part.size() == piece.size()) {
      out.insert(out.end(), tokens.begin(), tokens.end());
      return true;
    }
    if (tokens.size() < 2) return false;
    std::size_t n_kept = 0;
    for (std::size_t kept_bytes = 0; n_kept + 1 < tokens.size() && kept_bytes < window * 3 / 4; ++n_kept) {
      const std::size_t n_token = tokens_.n_bytes(tokens[n_kept]);
      kept_bytes += n_token;
      start += n_token;
    }
    out.insert(out.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n_kept));
    expected = tokens[n_kept];
  }
}

}  // namespace webtext
