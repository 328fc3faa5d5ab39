// Merging one piece: at once, or in windows if it is long.
#include "encode/encoder.hpp"

namespace webtext {
namespace {

constexpr std::size_t kLongWindow = 4096;  // bytes
constexpr std::size_t kVeryLong = 1024;    // bytes; above, it is worth checking whether windows are allowed

}  // namespace

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
  if (merge_short_ && piece.size() <= kShortPiece) {
    merge_alone(piece, worker.scratch);
    return worker.scratch;
  }
  if (piece.size() > kVeryLong && is_orderly()) {
    const bool has_short = merge_short_ && merge_by_windows(worker, piece, kShortPiece);
    if (has_short || merge_by_windows(worker, piece, kLongWindow)) return worker.scratch;
  }
  return worker.merger(rules_, byte_tokens_, piece);
}

// Merges one piece of at most kShortPiece bytes.
void Bpe::merge_alone(std::string_view piece, std::vector<std::uint32_t>& into) const {
  std::uint16_t tokens[kShortPiece + ShortPiece::kSlack];
  const PieceKey key = PieceKey::of(begin_of(piece), piece.size());
  ShortPiece merged{begin_of(piece), key.padded(), piece.size(), tokens, 0};
  merge_short_(narrow_rules_, &merged, 1);
  into.assign(tokens, tokens + merged.n_tokens);
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
    if (window <= kShortPiece) merge_alone(part, worker.window);
    const auto& tokens = window <= kShortPiece ? worker.window : worker.merger(rules_, byte_tokens_, part);
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
