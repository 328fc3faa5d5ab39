// The tokens of a vocabulary: bytes by token, and token by bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/growing.hpp"
#include "base/hashing.hpp"
#include "scan/characters.hpp"

namespace webtext {

class TokenTable {
 public:
  static constexpr std::uint32_t kNone = ~0u;

  // `n_tokens` is a guess; the table grows.
  explicit TokenTable(std::size_t n_tokens = 0) {
    std::size_t n_slots = 1 << 10;
    while (n_slots < 2 * n_tokens) n_slots *= 2;
    slots_.assign(n_slots, {kNone, 0});
    starts_.push_back(0);
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(starts_.size() - 1); }
  std::uint32_t n_bytes(std::uint32_t token) const {
    return static_cast<std::uint32_t>(starts_[token + 1] - starts_[token]);
  }

  // The bytes of a token; empty for an id without a token. Token i is data()[starts()[i]] to data()[starts()[i + 1]].
  std::string_view bytes_of(std::uint64_t token) const {
    return token < size() ? view_of(data() + starts_[token], n_bytes(static_cast<std::uint32_t>(token)))
                          : std::string_view();
  }
  const Byte* data() const { return bytes_.data(); }
  const std::uint64_t* starts() const { return starts_.data(); }

  // Appends a token, which `find` finds if `is_text` and if it has bytes. They must not be this table's own. Adds
  // nothing and returns the other token if it would have the same bytes as one that `find` finds.
  std::uint32_t add(std::string_view bytes, bool is_text = true) {
    const bool is_found = is_text && !bytes.empty();
    const std::uint64_t hash = is_found ? hash_of(bytes) : 0;
    if (const std::uint32_t other = is_found ? slots_[slot_of(bytes, hash)].token : kNone; other != kNone) return other;
    append(bytes);
    if (is_found) index(size() - 1, hash);
    return kNone;
  }

  // Adds a token with the joined bytes of two others; adds and returns nothing if these bytes are a token already.
  std::optional<std::uint32_t> join(std::uint32_t left, std::uint32_t right) {
    joined_.assign(bytes_of(left)).append(bytes_of(right));
    const std::uint64_t hash = hash_of(joined_);
    if (slots_[slot_of(joined_, hash)].token != kNone) return std::nullopt;
    append(joined_);
    index(size() - 1, hash);
    return size() - 1;
  }

  // Returns the token with these bytes, or kNone.
  std::uint32_t find(std::string_view bytes) const { return slots_[slot_of(bytes, hash_of(bytes))].token; }

  // Makes `n_bytes` after the last token readable.
  void pad(std::size_t n_bytes) { bytes_.resize(bytes_.size() + n_bytes); }

 private:
  struct Slot {
    std::uint32_t token, tag;  // `tag`: the upper half of the hash
  };

  static std::uint64_t hash_of(std::string_view bytes) { return kTableHash.bytes(begin_of(bytes), bytes.size()); }

  void append(std::string_view bytes) {
    const std::size_t end = bytes_.size();
    bytes_.resize(end + bytes.size());
    if (!bytes.empty()) std::memcpy(&bytes_[end], bytes.data(), bytes.size());
    starts_.push_back(bytes_.size());
  }

  void index(std::uint32_t token, std::uint64_t hash) {
    if (2 * ++n_indexed_ > slots_.size()) {
      std::vector<Slot> old(2 * slots_.size(), {kNone, 0});
      old.swap(slots_);
      for (const Slot& slot : old) {
        if (slot.token != kNone) put(slot.token, hash_of(bytes_of(slot.token)));
      }
    }
    put(token, hash);
  }

  void put(std::uint32_t token, std::uint64_t hash) {
    slots_[slot_of(bytes_of(token), hash)] = {token, static_cast<std::uint32_t>(hash >> 32)};
  }

  // The slot of the token with these bytes, or a free slot for it.
  std::size_t slot_of(std::string_view bytes, std::uint64_t hash) const {
    return probe(hash, slots_.size(), [&](std::size_t at) {
      const auto [token, tag] = slots_[at];
      return token == kNone || (tag == hash >> 32 && bytes_of(token) == bytes);
    });
  }

  Growing<Byte> bytes_;
  Growing<std::uint64_t> starts_;
  std::vector<Slot> slots_;
  std::size_t n_indexed_ = 0;
  std::string joined_;
};

}  // namespace webtext
