// Interning: numbers distinct pieces of text and 64-bit keys. Open addressing; every hit is compared.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

namespace webtext::signals {

// Multiplies to 128 bits and folds the halves, which mixes all bits of both factors.
inline uint64_t mix(uint64_t left, uint64_t right) {
  const auto product = static_cast<unsigned __int128>(left) * right;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Random per process, so that no text can be made to collide on purpose.
inline uint64_t seed() {
  static const uint64_t value = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device() | 1;
  }();
  return value;
}

inline uint64_t hash_of(std::string_view piece, uint64_t seed) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  const char* at = piece.data();
  size_t left = piece.size();
  uint64_t hash = seed ^ left * kOdd, word = 0;
  for (; left > 8; at += 8, left -= 8) {
    std::memcpy(&word, at, 8);
    hash = mix(hash ^ word, seed ^ kOdd);
  }
  word = 0;
  if (left >= 4) {  // two reads that may overlap cover 4 to 8 bytes
    uint32_t head, tail;
    std::memcpy(&head, at, 4);
    std::memcpy(&tail, at + left - 4, 4);
    word = uint64_t{head} << 32 | tail;
  } else if (left > 0) {
    word = uint64_t{static_cast<uint8_t>(at[0])} << 16 | uint64_t{static_cast<uint8_t>(at[left / 2])} << 8 |
           static_cast<uint8_t>(at[left - 1]);
  }
  return mix(hash ^ word, seed ^ kOdd);
}

inline constexpr size_t kFewSlots = 256, kManySlots = 1 << 16;

// Numbers pieces of text from 0 in the order of their first occurrence. The pieces must stay in memory until restart().
class Pieces {
 public:
  // Forgets all pieces; `expected` is an estimate of the number of distinct ones to come.
  void restart(size_t expected) {
    const size_t n_slots = std::clamp(std::bit_ceil(expected * 2), kFewSlots, kManySlots);
    slots_.assign(n_slots, {0, 0});
    entries_.clear();
  }
  uint32_t number(std::string_view piece, bool& is_new) {
    const uint64_t hash = hash_of(piece, seed_);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t slot = hash & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].number == 0) {
        is_new = true;
        return insert(piece, hash, slot);
      }
      if (slots_[slot].tag == tag && entries_[slots_[slot].number - 1].piece == piece) {
        is_new = false;
        return slots_[slot].number - 1;
      }
    }
  }
  size_t memory() const { return slots_.capacity() * sizeof(Slot) + entries_.capacity() * sizeof(Entry); }

 private:
  struct Slot {
    uint32_t number, tag;  // number 0: free
  };
  struct Entry {
    std::string_view piece;
    uint64_t hash;
  };
  uint32_t insert(std::string_view piece, uint64_t hash, size_t slot) {
    const auto number = static_cast<uint32_t>(entries_.size());
    entries_.push_back({piece, hash});
    slots_[slot] = {number + 1, static_cast<uint32_t>(hash >> 32)};
    if (entries_.size() * 2 > slots_.size()) grow();
    return number;
  }
  void grow() {
    slots_.assign(slots_.size() * 4, {0, 0});
    for (size_t i = 0; i < entries_.size(); ++i) {
      size_t slot = entries_[i].hash & (slots_.size() - 1);
      while (slots_[slot].number != 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = {static_cast<uint32_t>(i + 1), static_cast<uint32_t>(entries_[i].hash >> 32)};
    }
  }

  uint64_t seed_ = seed();
  std::vector<Slot> slots_;
  std::vector<Entry> entries_;
};

// Numbers 64-bit keys in the same way, without a branch on whether a key is new: that would often be mispredicted.
class Keys {
 public:
  void restart(size_t expected) {
    slots_.assign(std::clamp(std::bit_ceil(expected * 2), kFewSlots, kManySlots), {0, 0});
    size_ = 0;
  }
  uint32_t number(uint64_t key) {
    size_t at = mix(key ^ seed_, kOdd) & (slots_.size() - 1);
    while ((slots_[at].number != 0) & (slots_[at].key != key)) at = (at + 1) & (slots_.size() - 1);
    Slot& slot = slots_[at];
    size_ += slot.number == 0;
    const uint32_t number = slot.number == 0 ? size_ : slot.number;
    slot = {key, number};
    if (size_t{size_} * 2 > slots_.size()) grow();
    return number - 1;
  }
  size_t memory() const { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    uint64_t key;
    uint32_t number;  // 0: free
  };
  void grow() {
    std::vector<Slot> old(slots_.size() * 4, {0, 0});
    old.swap(slots_);
    for (const Slot& each : old) {
      if (each.number == 0) continue;
      size_t at = mix(each.key ^ seed_, kOdd) & (slots_.size() - 1);
      while (slots_[at].number != 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = each;
    }
  }

  static constexpr uint64_t kOdd = 0xD6E8FEB86659FD93;
  uint64_t seed_ = seed();
  uint32_t size_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace webtext::signals
