// Encoding with superwords in two steps: the ordinary merges in each word, then the superwords over the words' tokens.
//
// The pattern "gpt2-superwords" makes one piece of a row of words, so that plain merging works on long pieces of which
// few were met before. But a merge that goes over the border of two words has a right token that begins with a blank or
// an apostrophe, and no other merge has one inside a run. As long as the list holds these merges last, all others come
// first and stay in their word, whose tokens are in the table of pieces; and two tokens that a superword joins can
// stand side by side nowhere but in a run. So joining needs the tokens of a text alone, and no pieces.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "characters.hpp"
#include "merge_rules.hpp"

namespace webtext {

class SuperwordJoiner {
 public:
  struct Merge {
    std::uint32_t left, right, token;
  };
  using BytesOf = std::function<std::string_view(std::uint32_t token)>;

  // Nothing where the merges, in order of rank, do not allow to join words afterwards.
  static std::optional<SuperwordJoiner> from(const std::vector<Merge>& merges, std::uint32_t n_tokens,
                                             const BytesOf& bytes_of);

  // What `join` works with; keeps its memory between calls.
  struct Scratch {
    std::vector<std::uint32_t> tokens, before, after;
    std::vector<Rule> rules;
    std::vector<std::uint64_t> heap;
  };

  // Joins tokens[0..n) in place, the ordinary tokens of a text or of a part that ends where a run does; returns how
  // many are left. Nothing, and no token changed, where an ordinary merge could go over a border: such a text is to be
  // merged run by run.
  template <class Token>
  std::optional<std::size_t> join(Token* tokens, std::size_t n, Scratch& scratch) const;

 private:
  enum : std::uint8_t {
    kLeft = 1,
    kRight = 2
  };  // of a token: whether a superword holds it as not its last word,
      // as not its first
  enum : std::uint8_t { kBlank = 1, kApostrophe = 2 };

  bool learn(const std::vector<Merge>& merges, const BytesOf& bytes_of);
  bool is_border_kept(std::uint32_t left, std::uint32_t right) const {
    return !(roles_[left] & kLeft && roles_[right] & kRight && borders_(left, right).rank != Rule::kNever);
  }
  void merge(Scratch& scratch) const;

  MergeRules rules_;                         // of superwords
  MergeRules borders_;                       // between words: the pairs of tokens that some superword holds
  std::vector<std::uint8_t> roles_;          // by token
  std::array<std::uint8_t, 256> hazards_{};  // by the last byte of a token: what may follow and merge with it
  std::vector<std::uint8_t> last_, first_;   // by token: its last byte, and what it begins with
  bool has_hazards_ = false;
};

}  // namespace webtext
