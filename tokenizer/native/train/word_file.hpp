// Distinct pieces as tokens, with their counts, in a nameless file: those for which memory has no room.
//
// For each piece: the number of its tokens, its count, and its tokens, as LEB128 (see count_file.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/count_file.hpp"

namespace webtext {

class WordFile {
 public:
  explicit WordFile(const std::string& folder) : file_(OpenFile::temporary(folder)) {}

  void add(const std::vector<std::uint32_t>& tokens, std::int64_t count) {
    put(tokens.size());
    put(static_cast<std::uint64_t>(count));
    for (const std::uint32_t token : tokens) put(token);
    ++n_words_;
  }

  void finish() {
    file_->write(n_written_, buffer_.data(), buffer_.size());
    n_written_ += buffer_.size();
    buffer_.clear();
  }

  // Calls use(tokens, count) for every piece, in order. Call `finish` first.
  template <class Use>
  void each(const Use& use) const {
    std::string buffer;
    std::size_t at = 0;
    std::uint64_t n_read = 0;
    const auto get = [&] {
      std::uint64_t number = 0;
      for (int shift = 0;; shift += 7) {
        if (at == buffer.size()) {
          buffer.resize(kBuffer);
          buffer.resize(file_->read(n_read, buffer.data(), kBuffer));
          n_read += buffer.size();
          at = 0;
          if (buffer.empty()) throw CountFileError("a temporary file was cut short");
        }
        const auto byte = static_cast<std::uint8_t>(buffer[at++]);
        number |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) return number;
      }
    };
    std::vector<std::uint32_t> tokens;
    for (std::uint64_t word = 0; word < n_words_; ++word) {
      tokens.resize(get());
      const auto count = static_cast<std::int64_t>(get());
      for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(get());
      use(tokens, count);
    }
  }

 private:
  static constexpr std::size_t kBuffer = std::size_t{1} << 18;

  void put(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) buffer_ += static_cast<char>(number | 0x80);
    buffer_ += static_cast<char>(number);
    if (buffer_.size() >= kBuffer) finish();
  }

  std::shared_ptr<OpenFile> file_;
  std::string buffer_;
  std::uint64_t n_words_ = 0, n_written_ = 0;
};

}  // namespace webtext
