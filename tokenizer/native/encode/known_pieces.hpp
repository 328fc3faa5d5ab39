// A hash table of known pieces and their tokens. It makes encoding fast, because few pieces of a text are new.
//
// A piece of up to 15 bytes is its own key; a longer one has a hash as key, and its bytes are compared. A bucket is a
// cache line with two entries. A piece is in its first bucket, or in its second if the first was full, so nearly all
// are found at once and a half-full table forgets none. (With one bucket only, one piece in 200 of English was merged
// again and again.) A piece's tokens are in its entry if they fit, otherwise in an arena. Memory is bounded: a full
// table replaces pieces. Time is bounded: a look-up compares at most four entries, and pieces that collide are merged
// again.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/hashing.hpp"
#include "base/huge_array.hpp"
#include "scan/characters.hpp"

namespace webtext {

struct PieceKey {
  static constexpr std::size_t kMaxBytes = 15;

  std::uint64_t low, high;  // the bytes, zero-padded; the last byte is the length, or kLong

  bool operator==(const PieceKey&) const = default;
  std::uint64_t hash() const { return kTableHash.mix(low, high); }
  const Byte* padded() const { return reinterpret_cast<const Byte*>(this); }  // for short pieces
  bool is_long() const { return high >> 56 == kLong; }

  // Returns the key of a piece at the end of readable memory.
  static PieceKey of(const Byte* bytes, std::size_t n_bytes) {
    if (n_bytes > kMaxBytes) return of_long(bytes, n_bytes);
    const std::uint64_t low = load_short(bytes, std::min<std::size_t>(n_bytes, 8));
    const std::uint64_t rest = n_bytes > 8 ? load_short(bytes + 8, n_bytes - 8) : 0;
    return {low, rest | static_cast<std::uint64_t>(n_bytes) << 56};
  }

  // Returns the key of a piece if 16 bytes can be read at `bytes`, whatever the piece's length.
  static PieceKey of_readable(const Byte* bytes, std::size_t n_bytes) {
    if (n_bytes > kMaxBytes) return of_long(bytes, n_bytes);
    PieceKey key;
    std::memcpy(&key, bytes, sizeof key);
    key.low &= kMasks[n_bytes].low;
    key.high = (key.high & kMasks[n_bytes].high) | static_cast<std::uint64_t>(n_bytes) << 56;
    return key;
  }

 private:
  static constexpr std::uint64_t kLong = 0xFF;

  struct Mask {
    std::uint64_t low, high;
  };
  struct Masks {
    constexpr Masks() : of() {
      for (std::size_t n = 0; n <= kMaxBytes; ++n) {
        of[n] = {n < 8 ? (std::uint64_t{1} << 8 * n) - 1 : ~std::uint64_t{0},
                 n < 8 ? 0 : (std::uint64_t{1} << 8 * (n - 8)) - 1};
      }
    }
    constexpr const Mask& operator[](std::size_t n) const { return of[n]; }
    Mask of[kMaxBytes + 1];
  };
  static const Masks kMasks;

  static PieceKey of_long(const Byte* bytes, std::size_t n_bytes) {
    return {kTableHash.bytes(bytes, n_bytes), kLong << 56 | (n_bytes & 0xFFFFFFFF)};
  }
};

inline constexpr PieceKey::Masks PieceKey::kMasks{};

// `Id` is uint16_t if every token fits in it, else uint32_t.
template <class Id>
struct KnownPiece {
  static constexpr std::size_t kIds = 16 / sizeof(Id) - 1;
  static constexpr Id kInArena = static_cast<Id>(~Id{0});

  PieceKey key;
  Id ids[kIds];  // or a uint32_t: the position in the arena
  Id n;          // number of ids; 0: the entry is empty; or kInArena
};

template <class Id>
class KnownPieces {
 public:
  using Entry = KnownPiece<Id>;
  static constexpr std::size_t kIds = Entry::kIds;

  KnownPieces() { clear(kLeastBuckets); }

  std::size_t memory() const { return 2 * (mask_ + 1) * sizeof(Entry) + 4 * arena_.capacity(); }

  // The two entries of a bucket.
  const Entry* bucket(std::uint64_t hash) const { return &entries_[2 * (hash & mask_)]; }
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(bucket(hash)); }

  // The entry of a piece in its second bucket, or null.
  const Entry* find_second(const PieceKey& key) const {
    const Entry* pair = bucket(key.hash() >> 32);
    for (const Entry* entry : {pair, pair + 1}) {
      if (entry->key == key && entry->n) return entry;
    }
    return nullptr;
  }

  // The tokens of an entry in the arena; none if a long piece has other bytes.
  std::span<const std::uint32_t> in_arena(const Entry& entry, const Byte* bytes, std::size_t n_bytes) const {
    std::uint32_t where;
    std::memcpy(&where, entry.ids, sizeof where);
    const std::uint32_t *at = &arena_[where], *ids = at + 2;
    if (entry.key.is_long() && (at[1] != n_bytes || std::memcmp(ids + at[0], bytes, n_bytes))) return {};
    return {ids, at[0]};
  }

  // Makes room for n more pieces. Entries are moved, and all are dropped at once, only here.
  void reserve(std::size_t n) {
    if (arena_.size() > kArenaWords) clear(mask_ + 1);
    // At most a quarter of the entries is used: with a half, warm text took 450 instead of 510 MB/s.
    while (n_filled_ + n > (mask_ + 1) / 2 && mask_ + 1 < kMostBuckets) grow();
  }

  // Inserts a piece that isn't in the table. If there is no room, it replaces another piece.
  void insert(const PieceKey& key, const Byte* bytes, std::size_t n_bytes, const std::uint32_t* ids,
              std::size_t n_ids) {
    Entry& entry = slot(key);
    if (entry.n && entry.key == key) return;
    entry.key = key;
    if (n_ids <= kIds && !key.is_long()) {
      for (std::size_t index = 0; index < n_ids; ++index) entry.ids[index] = static_cast<Id>(ids[index]);
      entry.n = static_cast<Id>(n_ids);
      return;
    }
    const auto where = static_cast<std::uint32_t>(arena_.size());
    std::memcpy(entry.ids, &where, sizeof where);
    entry.n = Entry::kInArena;
    arena_.push_back(static_cast<std::uint32_t>(n_ids));
    arena_.push_back(static_cast<std::uint32_t>(n_bytes));
    arena_.insert(arena_.end(), ids, ids + n_ids);
    if (!key.is_long()) return;
    arena_.resize(arena_.size() + (n_bytes + 3) / 4);
    std::memcpy(&arena_[where + 2 + n_ids], bytes, n_bytes);
  }

 private:
  static constexpr std::size_t kLeastBuckets = 1 << 11, kMostBuckets = 1 << 19;  // two entries each: at most 32 MiB
  static constexpr std::size_t kArenaWords = 8 << 20, kHugePage = 2 << 20;

  // Address space for the largest table is reserved, which costs nothing until it is touched. Growing spreads the
  // entries within it, because touching new memory would be the largest cost of a first text.
  void clear(std::size_t n_buckets) {
    entries_ = HugeArray<Entry>(2 * kMostBuckets, false);
    if (const std::size_t n_bytes = 2 * n_buckets * sizeof(Entry); n_bytes > kHugePage)
      on_huge_pages(&entries_[0], n_bytes);
    mask_ = n_buckets - 1;
    n_filled_ = 0;
    arena_.clear();
  }

  // Doubles the number of buckets: an entry of bucket b moves to b or to b + n, depending on its hash. Growing fourfold
  // was slower.
  void grow() {
    const std::size_t n = mask_ + 1;
    mask_ = 2 * n - 1;
    if (2 * n * sizeof(Entry) >= kHugePage) on_huge_pages(&entries_[2 * n], 2 * n * sizeof(Entry));
    for (std::size_t bucket = 0; bucket < n; ++bucket) {
      Entry *low = &entries_[2 * bucket], *high = &entries_[2 * (bucket + n)];
      const Entry pair[] = {low[0], low[1]};
      low[0].n = low[1].n = 0;
      for (const Entry& entry : pair) {
        if (!entry.n) continue;
        const std::uint64_t hash = entry.key.hash();
        const std::uint64_t half = (hash & (n - 1)) == bucket ? hash : hash >> 32;
        *(half & n ? high : low)++ = entry;
      }
    }
    for (std::size_t index = 0; index < 4 * n; ++index) {  // from second buckets to first ones that have room now
      Entry& entry = entries_[index];
      if (!entry.n || (entry.key.hash() & mask_) == index / 2) continue;
      Entry* first = &entries_[2 * (entry.key.hash() & mask_)];
      if (first[0].n && first[1].n) continue;
      first[first[0].n ? 1 : 0] = entry;
      entry.n = 0;
    }
  }

  // The entry of a piece, or the one to use for it: a free one, or one to replace in its second bucket. The first of
  // the two is replaced less often, because pieces that occur early occur often.
  Entry& slot(const PieceKey& key) {
    const std::uint64_t hash = key.hash();
    for (const std::uint64_t half : {hash, hash >> 32}) {
      Entry* pair = &entries_[2 * (half & mask_)];
      for (Entry* entry : {pair, pair + 1}) {
        if (entry->n && entry->key == key) return *entry;
        if (entry->n) continue;
        ++n_filled_;
        return *entry;
      }
    }
    return entries_[2 * (hash >> 32 & mask_) + (++n_replaced_ % 8 != 0)];
  }

  HugeArray<Entry> entries_;
  std::size_t mask_ = 0, n_filled_ = 0, n_replaced_ = 0;
  std::vector<std::uint32_t> arena_;
};

}  // namespace webtext
