// Encodes text a window of pieces at a time, in steps: cut the pieces; compute their keys and prefetch their cache
// lines; look them up; merge the new ones together, so that their memory accesses overlap; copy all tokens, without a
// branch on their number; insert the new pieces into the table. Encoding piece by piece took three times as long.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "encode/bpe.hpp"
#include "encode/merging.hpp"
#include "scan/shares.hpp"

namespace webtext {

inline constexpr std::size_t kMaxKept = 128;  // bytes; longer pieces aren't inserted into the table

class Worker {
 public:
  template <class Id>
  KnownPieces<Id>& table() {
    auto& table = std::get<std::unique_ptr<KnownPieces<Id>>>(tables_);
    if (!table) table = std::make_unique<KnownPieces<Id>>();
    return *table;
  }

  // The bytes that it keeps.
  std::size_t memory() const {
    const auto of = [](const auto& table) { return table ? table->memory() : 0; };
    return of(std::get<0>(tables_)) + of(std::get<1>(tables_)) + merger.memory() + copy.capacity() +
           4 * (scratch.capacity() + window.capacity());
  }

  Merger merger;
  std::vector<std::uint32_t> scratch, window;
  std::vector<Byte> copy;  // a copy of a share of a text

 private:
  std::tuple<std::unique_ptr<KnownPieces<std::uint16_t>>, std::unique_ptr<KnownPieces<std::uint32_t>>> tables_;
};

// Borrows an idle worker for one call, or creates one. Idle workers together keep at most kIdleBytes. A worker is not
// used again after an exception, such as a lack of memory, which may have left its tables in the middle of a change.
class Bpe::Lease {
 public:
  explicit Lease(const Bpe& bpe) : bpe_(bpe) {
    for (auto& slot : bpe.idle_) {
      if (!slot.load(std::memory_order_relaxed) || !(worker_ = slot.exchange(nullptr))) continue;
      bpe_.n_idle_bytes_ -= worker_->memory();
      return;
    }
    worker_ = new Worker;
  }
  ~Lease() {
    const std::size_t n_bytes = worker_->memory();
    if (bpe_.n_idle_bytes_.fetch_add(n_bytes) + n_bytes <= kIdleBytes && std::uncaught_exceptions() == n_exceptions_) {
      for (auto& slot : bpe_.idle_) {
        Worker* empty = nullptr;
        if (slot.compare_exchange_strong(empty, worker_)) return;
      }
    }
    bpe_.n_idle_bytes_ -= n_bytes;
    delete worker_;
  }
  Lease(const Lease&) = delete;
  Worker& operator*() const { return *worker_; }

 private:
  const Bpe& bpe_;
  Worker* worker_ = nullptr;
  const int n_exceptions_ = std::uncaught_exceptions();
};

// Encodes with one worker. `Id` is the type in its table, `Token` the type of the output.
template <class Id, class Token>
class Bpe::Encoder {
 public:
  // Pieces. 128 to 256 were 5 to 20 % slower; 512 were as fast for long texts, and cut documents of 4 KB into two.
  static constexpr std::size_t kWindow = 1536;

  Encoder(const Bpe& bpe, Worker& worker)
      : bpe_(bpe), worker_(worker), rules_(std::get<ShortRules<Id>>(bpe.short_)), table_(worker.table<Id>()) {}

  // Encodes shares in order, so that short ones use one window; ended(share, out) is called with the end of its tokens.
  // With `copies`, each is copied first.
  template <class Ended>
  Token* encode_all(std::span<const Share> shares, bool copies, Token* out, const Ended& ended) {
    constexpr std::size_t kFew = 256;  // pieces for which it isn't worth cutting a text
    std::uint32_t ends[kWindow];
    for (const Share& share : shares) {
      const Byte *begin = share.begin, *end = share.end;
      do {
        if (copies || kWindow - n_pieces_ < kFew) out = flush(out, ended);
        if (copies && begin == share.begin) {
          worker_.copy.assign(begin, end);
          begin = worker_.copy.data();
          end = begin + worker_.copy.size();
        }
        std::uint32_t* const room = ends + n_pieces_;
        const std::size_t n_pieces = begin < end ? bpe_.scanner_.cut(begin, end, room, kWindow - n_pieces_) : 0;
        const Byte* const next = n_pieces ? begin + room[n_pieces - 1] : begin;
        add({begin, room, n_pieces, next == end ? &share : nullptr}, end);
        begin = next;
      } while (begin < end);
    }
    return flush(out, ended);
  }

  // Writes the tokens of the pieces that end at begin + ends[i]; the text is readable up to `end`.
  Token* encode_window(const Byte* begin, const Byte* end, const std::uint32_t* ends, std::size_t n_pieces,
                       Token* out) {
    add({begin, ends, n_pieces, nullptr}, end);
    return flush(out, [](const Share&, Token*) {});
  }

 private:
  using Table = KnownPieces<Id>;
  using Entry = KnownPiece<Id>;
  static constexpr std::size_t kIds = Entry::kIds;

  struct New {
    PieceKey key;
    const Byte* bytes;
    std::size_t n_bytes;
    std::size_t first, n_tokens;  // in new_tokens_
  };

  // Consecutive pieces of one text: piece i ends at begin + ends[i].
  struct Part {
    const Byte* begin;
    const std::uint32_t* ends;
    std::size_t n_pieces;
    const Share* ended;  // the share that ends with them, or null
  };

  // Adds pieces to the window and computes their keys; the text is readable up to `end`.
  void add(const Part& part, const Byte* end) {
    const auto readable = static_cast<std::size_t>(end - part.begin);
    PieceKey* const keys = keys_ + n_pieces_;
    std::uint32_t *const hashes = hashes_ + n_pieces_, start = 0;
    for (std::size_t index = 0; index < part.n_pieces; start = part.ends[index++]) {
      const std::uint32_t n_bytes = part.ends[index] - start;
      keys[index] = readable - start >= sizeof(PieceKey) ? PieceKey::of_readable(part.begin + start, n_bytes)
                                                         : PieceKey::of(part.begin + start, n_bytes);
      hashes[index] = static_cast<std::uint32_t>(keys[index].hash());
      table_.prefetch(hashes[index]);
    }
    parts_.push_back(part);
    n_pieces_ += part.n_pieces;
  }

  // Writes the tokens of the window's pieces and empties the window.
  template <class Ended>
  Token* flush(Token* out, const Ended& ended) {
    n_new_ = 0;
    table_.reserve(n_pieces_);
    const std::size_t n_missed = look_up(n_pieces_);
    if (n_missed) merge_missed(n_missed);
    const Entry* const* found = found_;
    for (const Part& part : parts_) {
      std::uint32_t start = 0;
      for (std::size_t index = 0; index < part.n_pieces; start = part.ends[index++]) {
        const Entry& entry = **found++;
        copy_all(entry.ids, out);
        if (entry.n <= kIds) [[likely]] {
          out += entry.n;
        } else {
          out = copy_many(entry, part.begin + start, part.ends[index] - start, out);
        }
      }
      if (part.ended) ended(*part.ended, out);
    }
    for (std::size_t index = 0; index < n_new_; ++index) remember(index);
    parts_.clear();
    n_pieces_ = 0;
    return out;
  }

  // Finds the entries of the window's pieces; lists pieces without an entry in missed_ and returns their number. A
  // small table of the latest pieces before this one cost more than it saved (67 to 80 ms instead of 56 for 52 MB), and
  // so did copying in the same loop (38 ms instead of 36).
  std::size_t look_up(std::size_t n_pieces) {
    std::size_t n_missed = 0;
    for (std::size_t index = 0; index < n_pieces; ++index) {
      const PieceKey key = keys_[index];
      const Entry* pair = table_.bucket(hashes_[index]);
      const bool first = pair[0].key == key, second = pair[1].key == key;
      found_[index] = pair + (first ? 0 : 1);
      missed_[n_missed] = static_cast<std::uint32_t>(index);
      n_missed += !(first | second);
    }
    return n_missed;
  }

  // Creates entries for the missed pieces in new_entries_ by merging. They must not be inserted into the table before
  // all tokens are copied, because they could replace an entry that was found. Merging them among the look-ups instead
  // of after them was slower (320 instead of 450 MB/s).
  void merge_missed(std::size_t n_missed) {
    new_tokens_.clear();
    for (std::size_t place = 0; place < n_missed; ++place) table_.prefetch(keys_[missed_[place]].hash() >> 32);
    const Part* part = parts_.data();
    std::size_t n_before = 0;  // pieces of parts before `part`
    for (std::size_t place = 0; place < n_missed; ++place) {
      const std::uint32_t index = missed_[place];
      if ((found_[index] = table_.find_second(keys_[index]))) continue;
      for (; index >= n_before + part->n_pieces; ++part) n_before += part->n_pieces;
      const std::uint32_t* const end = part->ends + (index - n_before);
      const std::uint32_t start = index > n_before ? end[-1] : 0;
      new_[n_new_] = {keys_[index], part->begin + start, *end - start, 0, 0};
      found_[index] = &new_entries_[n_new_++];
    }
    if (rules_.merge && !bpe_.whole_pieces_) merge_together();
    for (std::size_t index = 0; index < n_new_; ++index) {
      New& piece = new_[index];
      if (!piece.n_tokens) merge_alone(piece);
      Entry& entry = new_entries_[index];
      entry.n = piece.n_tokens <= kIds ? static_cast<Id>(piece.n_tokens) : Entry::kInArena;
      for (std::size_t id = 0; id < std::min(piece.n_tokens, kIds); ++id) {
        entry.ids[id] = static_cast<Id>(new_tokens_[piece.first + id]);
      }
    }
  }

  template <class Number>
  void keep(New& piece, const Number* tokens, std::size_t n_tokens) {
    piece.first = new_tokens_.size();
    piece.n_tokens = n_tokens;
    new_tokens_.insert(new_tokens_.end(), tokens, tokens + n_tokens);
  }

  void merge_alone(New& piece) {
    const auto& tokens = bpe_.merge_bytes(worker_, view_of(piece.bytes, piece.n_bytes));
    keep(piece, tokens.data(), tokens.size());
  }

  // Merges all short new pieces.
  void merge_together() {
    const auto is_due = [](const New& piece) { return piece.n_bytes <= kShortPiece; };
    short_.clear();
    std::size_t n_bytes = 0;
    for (std::size_t index = 0; index < n_new_; ++index)
      n_bytes += is_due(new_[index]) ? new_[index].n_bytes + kShortSlack : 0;
    short_tokens_.resize(n_bytes);
    Id* room = short_tokens_.data();
    for (std::size_t index = 0; index < n_new_; ++index) {
      if (!is_due(new_[index])) continue;
      short_.push_back({new_[index].bytes, new_[index].key.padded(), new_[index].n_bytes, room, 0});
      room += new_[index].n_bytes + kShortSlack;
    }
    rules_.merge(rules_, short_.data(), short_.size());
    std::size_t next = 0;
    for (std::size_t index = 0; index < n_new_; ++index) {
      if (!is_due(new_[index])) continue;
      const ShortPiece<Id>& merged = short_[next++];
      keep(new_[index], merged.tokens, merged.n_tokens);
    }
  }

  void remember(std::size_t index) {
    const New& piece = new_[index];
    if (piece.n_bytes > kMaxKept) return;
    table_.insert(piece.key, piece.bytes, piece.n_bytes, &new_tokens_[piece.first], piece.n_tokens);
  }

  // Copies all ids that an entry has room for, and one more (16 bytes).
  static void copy_all(const Id* ids, Token* out) {
    if constexpr (sizeof(Id) == sizeof(Token)) {
      std::memcpy(out, ids, 16);
    } else {
      Id read[16 / sizeof(Id)];
      std::memcpy(read, ids, 16);
      for (std::size_t index = 0; index < 16 / sizeof(Id); ++index) out[index] = read[index];
    }
  }

  static Token* copy(const std::uint32_t* ids, std::size_t n_ids, Token* out) {
    for (std::size_t index = 0; index < n_ids; ++index) out[index] = static_cast<Token>(ids[index]);
    return out + n_ids;
  }

  // Copies the tokens of a long piece, or of one with more tokens than fit in an entry.
  [[gnu::noinline]] Token* copy_many(const Entry& entry, const Byte* bytes, std::size_t n_bytes, Token* out) {
    if (&entry >= new_entries_ && &entry < new_entries_ + kWindow) {
      const New& piece = new_[&entry - new_entries_];
      return copy(&new_tokens_[piece.first], piece.n_tokens, out);
    }
    const auto tokens = table_.in_arena(entry, bytes, n_bytes);
    if (!tokens.empty()) return copy(tokens.data(), tokens.size(), out);
    const auto& merged = bpe_.merge_bytes(worker_, view_of(bytes, n_bytes));  // another long piece with the same hash
    return copy(merged.data(), merged.size(), out);
  }

  const Bpe& bpe_;
  Worker& worker_;
  const ShortRules<Id>& rules_;
  Table& table_;
  std::vector<Part> parts_;   // of the window
  std::size_t n_pieces_ = 0;  // in them
  PieceKey keys_[kWindow];
  std::uint32_t hashes_[kWindow], missed_[kWindow];
  const Entry* found_[kWindow];
  New new_[kWindow];
  Entry new_entries_[kWindow];
  std::size_t n_new_ = 0;
  std::vector<std::uint32_t> new_tokens_;
  std::vector<ShortPiece<Id>> short_;
  std::vector<Id> short_tokens_;
};

// Calls use(encoder) with a worker, and with the table type that fits the vocabulary.
template <class Token, class Use>
void Bpe::with_encoder(const Use& use) const {
  const Lease lease(*this);
  if constexpr (std::is_same_v<Token, std::uint16_t>) {
    Encoder<std::uint16_t, std::uint16_t> encoder(*this, *lease);
    use(encoder);
  } else if (is_narrow_) {
    Encoder<std::uint16_t, std::uint32_t> encoder(*this, *lease);
    use(encoder);
  } else {
    Encoder<std::uint32_t, std::uint32_t> encoder(*this, *lease);
    use(encoder);
  }
}

}  // namespace webtext
