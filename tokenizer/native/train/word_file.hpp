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
  explicit WordFile(const std::string& folder) : file_(OpenFile::temporary(folder)), writer_(file_) {}

  void add(const std::vector<std::uint32_t>& tokens, std::int64_t count) {
    writer_.put_number(tokens.size());
    writer_.put_number(static_cast<std::uint64_t>(count));
    for (const std::uint32_t token : tokens) writer_.put_number(token);
    ++n_words_;
  }

  void finish() { writer_.flush(); }

  // Calls use(tokens, count) for every piece, in order. Call `finish` first.
  template <class Use>
  void each(const Use& use) const {
    NumberReader reader(file_);
    std::vector<std::uint32_t> tokens;
    for (std::uint64_t word = 0; word < n_words_; ++word) {
      tokens.resize(reader.get_number());
      const auto count = static_cast<std::int64_t>(reader.get_number());
      for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(reader.get_number());
      use(tokens, count);
    }
  }

 private:
  std::shared_ptr<OpenFile> file_;
  NumberWriter writer_;
  std::uint64_t n_words_ = 0;
};

}  // namespace webtext
