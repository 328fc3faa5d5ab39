// Reading OpenAI's rank files: a line has a token in base64 and its rank, the token's id.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace webtext {

class RankFile {
 public:
  // Reads up to the end, or to the first line that is damaged or whose rank isn't new and below `n_most`.
  RankFile(std::string_view file, std::uint32_t n_most) {
    while (n_read_ < file.size()) {
      const std::string_view rest = file.substr(n_read_), line = rest.substr(0, rest.find('\n'));
      if (!read_line(line, n_most)) return;
      n_read_ += std::min(line.size() + 1, rest.size());
    }
  }

  std::size_t n_read() const { return n_read_; }  // bytes
  std::size_t size() const { return tokens_.size(); }
  // The bytes of the token with this rank; empty if there is none.
  std::string_view operator[](std::size_t rank) const {
    return std::string_view(bytes_).substr(tokens_[rank].begin, tokens_[rank].n_bytes);
  }

 private:
  struct Token {
    std::uint32_t begin = 0, n_bytes = 0;  // in bytes_
  };

  bool read_line(std::string_view line, std::uint32_t n_most) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) return true;
    const std::size_t blank = line.find(' ');
    if (blank == line.npos) return false;
    const Token token{static_cast<std::uint32_t>(bytes_.size()), decode(line.substr(0, blank))};
    line.remove_prefix(blank + 1);
    std::uint32_t rank = 0;
    for (const char digit : line) {
      if (digit < '0' || digit > '9' || rank >= n_most) return false;
      rank = 10 * rank + static_cast<std::uint32_t>(digit - '0');
    }
    if (token.n_bytes == 0 || line.empty() || rank >= n_most) return false;
    if (rank >= tokens_.size()) tokens_.resize(rank + 1);
    if (tokens_[rank].n_bytes) return false;
    tokens_[rank] = token;
    return true;
  }

  // Appends the bytes that are encoded in base64 (RFC 4648) and returns their number; 0 if there are none.
  std::uint32_t decode(std::string_view text) {
    const std::size_t n_before = bytes_.size();
    if (text.empty() || text.size() % 4) return 0;
    const std::size_t n_padding = text.ends_with("==") ? 2 : text.ends_with('=');
    text.remove_suffix(n_padding);
    std::uint32_t bits = 0, n_bits = 0, wrong = 0;
    for (const char character : text) {
      const std::uint8_t value = kValues[static_cast<std::uint8_t>(character)];
      wrong |= value;
      bits = bits << 6 | value;
      if ((n_bits += 6) >= 8) bytes_.push_back(static_cast<char>(bits >> (n_bits -= 8)));
    }
    if (wrong & kWrong) bytes_.resize(n_before);
    return static_cast<std::uint32_t>(bytes_.size() - n_before);
  }

  static constexpr std::uint8_t kWrong = 0x80;
  static constexpr std::array<std::uint8_t, 256> kValues = [] {
    std::array<std::uint8_t, 256> values;
    values.fill(kWrong);
    std::uint8_t value = 0;
    for (const char character : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
      values[static_cast<std::uint8_t>(character)] = value++;
    return values;
  }();

  std::size_t n_read_ = 0;
  std::string bytes_;
  std::vector<Token> tokens_;  // by rank
};

}  // namespace webtext
