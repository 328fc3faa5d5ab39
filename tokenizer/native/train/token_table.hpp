// The tokens of a vocabulary during training: bytes by token, and token by bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/hashing.hpp"
#include "train/growing.hpp"

namespace webtext {

class TokenTable {
 public:
  TokenTable() { starts_.push_back(0); }

  std::uint32_t size() const { return static_cast<std::uint32_t>(starts_.size() - 1); }
  std::uint32_t n_bytes(std::uint32_t token) const {
    return static_cast<std::uint32_t>(starts_[token + 1] - starts_[token]);
  }

  // Appends a token; one without bytes is an id that text never produces.
  void add(std::string_view bytes) {
    append(bytes.data(), bytes.size());
    if (!bytes.empty()) note(size() - 1);
  }

  // Adds a token with the joined bytes of two others; adds and returns nothing if these bytes are a token already.
  std::optional<std::uint32_t> join(std::uint32_t left, std::uint32_t right) {
    const std::size_t n_left = n_bytes(left), n_right = n_bytes(right), end = bytes_.size();
    bytes_.resize(end + n_left + n_right);
    std::memcpy(&bytes_[end], &bytes_[starts_[left]], n_left);
    std::memcpy(&bytes_[end + n_left], &bytes_[starts_[right]], n_right);
    starts_.push_back(bytes_.size());
    const std::uint32_t token = size() - 1;
    if (slots_[find(token)] == kNone) {
      note(token);
      return token;
    }
    starts_.resize(starts_.size() - 1);
    bytes_.resize(end);
    return std::nullopt;
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;

  void append(const char* bytes, std::size_t n_bytes) {
    const std::size_t end = bytes_.size();
    bytes_.resize(end + n_bytes);
    if (n_bytes) std::memcpy(&bytes_[end], bytes, n_bytes);
    starts_.push_back(bytes_.size());
  }

  void note(std::uint32_t token) {
    if (2 * ++n_noted_ > slots_.size()) {
      slots_.assign(slots_.empty() ? std::size_t{1} << 10 : 2 * slots_.size(), kNone);
      for (std::uint32_t other = 0; other < token; ++other) {
        if (n_bytes(other)) slots_[find(other)] = other;
      }
    }
    slots_[find(token)] = token;
  }

  // The slot of the token with the same bytes, or a free slot for it.
  std::size_t find(std::uint32_t token) const {
    const std::size_t size = n_bytes(token);
    const std::uint8_t* bytes = &bytes_[starts_[token]];
    std::size_t at = kTableHash.bytes(bytes, size) & (slots_.size() - 1);
    for (; slots_[at] != kNone; at = (at + 1) & (slots_.size() - 1)) {
      if (n_bytes(slots_[at]) == size && !std::memcmp(&bytes_[starts_[slots_[at]]], bytes, size)) break;
    }
    return at;
  }

  Growing<std::uint8_t> bytes_;
  Growing<std::uint64_t> starts_;
  std::vector<std::uint32_t> slots_;
  std::size_t n_noted_ = 0;
};

}  // namespace webtext
