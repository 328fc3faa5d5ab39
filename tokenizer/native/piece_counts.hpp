// How often each distinct piece occurs: the first half of training.
#pragma once

#include <cstring>
#include <vector>

#include "hashing.hpp"
#include "scanner.hpp"

namespace webtext {

class PieceCounts {
 public:
  struct Piece {
    std::uint64_t hash = 0, start = 0, n_bytes = 0;
    std::int64_t count = 0;  // 64 bits: 32 overflow on tens of gigabytes of text
  };

  void add(const Byte* bytes, std::size_t n_bytes, std::int64_t count) {
    add_hashed(hash_bytes(bytes, n_bytes), bytes, n_bytes, count);
  }

  void add_all(const PieceCounts& other) {
    for (const Piece& piece : other.slots_) {
      if (piece.count) add_hashed(piece.hash, other.bytes(piece), piece.n_bytes, piece.count);
    }
  }

  // Cuts a text into pieces and counts them.
  void add_text(const Scanner& scanner, const Byte* begin, const Byte* end) {
    scanner.each_piece(begin, end, [&](const Byte* piece, std::size_t n_bytes) { add(piece, n_bytes, 1); });
  }

  // Calls use(bytes, n_bytes, count) for every distinct piece, in no particular order.
  template <class Use>
  void each(const Use& use) const {
    for (const Piece& piece : slots_) {
      if (piece.count) use(bytes(piece), piece.n_bytes, piece.count);
    }
  }

  std::size_t size() const { return n_pieces_; }
  const std::vector<Piece>& slots() const { return slots_; }  // those with count 0 are empty
  const Byte* bytes(const Piece& piece) const { return arena_.data() + piece.start; }

 private:
  void add_hashed(std::uint64_t hash, const Byte* bytes, std::size_t n_bytes, std::int64_t count) {
    if (count <= 0 || n_bytes == 0) return;
    if (2 * (n_pieces_ + 1) > slots_.size()) grow();
    std::size_t at = hash & (slots_.size() - 1);
    for (; slots_[at].count; at = (at + 1) & (slots_.size() - 1)) {
      Piece& piece = slots_[at];
      if (piece.hash == hash && piece.n_bytes == n_bytes && !std::memcmp(this->bytes(piece), bytes, n_bytes)) {
        piece.count += count;
        return;
      }
    }
    slots_[at] = {hash, arena_.size(), n_bytes, count};
    arena_.insert(arena_.end(), bytes, bytes + n_bytes);
    ++n_pieces_;
  }

  void grow() {
    std::vector<Piece> old(slots_.empty() ? std::size_t{1} << 12 : 2 * slots_.size());
    old.swap(slots_);
    for (const Piece& piece : old) {
      if (!piece.count) continue;
      std::size_t at = piece.hash & (slots_.size() - 1);
      while (slots_[at].count) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = piece;
    }
  }

  std::vector<Piece> slots_;
  std::vector<Byte> arena_;
  std::size_t n_pieces_ = 0;
};

}  // namespace webtext
