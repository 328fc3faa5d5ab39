// Texts divided among threads: shares in the order of the texts, where long texts are cut as every pattern cuts them,
// grouped into jobs of about kJobBytes.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "scan/safe_cut.hpp"

namespace webtext {

// A text or a part of it.
struct Share {
  const Byte *begin, *end;
  std::size_t text;
  bool ends_text;
};

class Jobs {
 public:
  Jobs(const std::vector<std::string_view>& texts, const ClassTable& classes) {
    std::ptrdiff_t n_bytes = kJobBytes;
    for (std::size_t text = 0; text < texts.size(); ++text) {
      const Byte *begin = begin_of(texts[text]), *end = end_of(texts[text]);
      do {
        const Byte* until = end - begin <= 2 * kJobBytes ? end : safe_cut(classes, begin, begin + kJobBytes, end);
        if (n_bytes >= kJobBytes) {
          firsts_.push_back(shares_.size());
          n_bytes = 0;
        }
        shares_.push_back({begin, until, text, until == end});
        n_bytes += until - begin;
        begin = until;
      } while (begin < end);
    }
    firsts_.push_back(shares_.size());
  }

  std::size_t size() const { return firsts_.size() - 1; }
  std::span<const Share> shares() const { return shares_; }
  std::span<const Share> operator[](std::size_t job) const {
    return shares().subspan(firsts_[job], firsts_[job + 1] - firsts_[job]);
  }

 private:
  static constexpr std::ptrdiff_t kJobBytes = 1 << 18;

  std::vector<Share> shares_;
  std::vector<std::size_t> firsts_;  // of each job, and the number of shares
};

}  // namespace webtext
