// Byte-level BPE with a fixed vocabulary: bytes to tokens and back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "encode/known_pieces.hpp"
#include "encode/merge_rules.hpp"
#include "encode/short_merging.hpp"
#include "encode/token_table.hpp"
#include "scan/scanner.hpp"

namespace webtext {

// What a thread needs while it encodes: scratch memory and the known pieces.
class Worker;

class Bpe {
 public:
  // Encoding may write this many tokens after the last one: n bytes need room for n + kSlack tokens.
  static constexpr std::size_t kSlack = 8;

  // tokens[id] is a token's bytes, empty if text never produces that id. Special tokens have an id and bytes and are
  // used only by decoding. `merges` are in order of rank; without them any two tokens whose joined bytes are a token
  // merge, the smallest id first. With `whole_pieces`, a piece that is a token becomes that token without merging.
  // Throws std::invalid_argument if this isn't a byte-level vocabulary.
  Bpe(const Scanner& scanner, std::vector<std::string_view> tokens, const std::optional<std::vector<Merge>>& merges,
      bool whole_pieces, const std::vector<std::pair<std::uint32_t, std::string>>& special_tokens);
  ~Bpe();

  // Cuts a text with the scanner, writes its tokens and returns their number. `Token` is uint32_t, or uint16_t if
  // is_narrow(). Throws std::length_error for a piece of 4 GiB or more.
  template <class Token>
  std::size_t encode(std::string_view text, Token* out) const;

  // Like `encode`, for a text that is already cut: piece i ends at piece_ends[i].
  std::size_t encode_pieces(std::string_view text, const std::int64_t* piece_ends, std::size_t n_pieces,
                            std::uint32_t* out) const;

  // Writes the tokens of many texts, and n + 1 offsets where each text's tokens begin. Threads also divide long texts.
  // With `may_change`, another thread may write to the texts. They are then copied in shares, because every read of a
  // byte must return the same value.
  template <class Token>
  void encode_many(const std::vector<std::string_view>& texts, unsigned n_threads, Token* out, std::int64_t* offsets,
                   bool may_change = false) const;

  // Whether every token of a text fits in 16 bits.
  bool is_narrow() const { return is_narrow_; }

  // Return the number of bytes of ids[0..n), and write these bytes. Both throw std::out_of_range for an id without
  // bytes, with the id and its position. Another thread may change the ids in between: if they no longer have `n_out`
  // bytes, `decode` throws std::invalid_argument.
  template <class Id>
  std::size_t decoded_size(const Id* ids, std::size_t n_ids) const;
  template <class Id>
  void decode(const Id* ids, std::size_t n_ids, char* out, std::size_t n_out) const;

  // Returns for each token the two tokens that it is merged from if only smaller ids may merge: the merges that a rank
  // file implies, if this merges by rank. Tokens that such merges can't produce are skipped.
  std::vector<Merge> merges_by_rank() const;

 private:
  class Lease;
  template <class Id, class Token>
  class Encoder;

  template <class Token, class Use>
  void with_encoder(const Use& use) const;
  const std::vector<std::uint32_t>& merge_bytes(Worker& worker, std::string_view piece) const;
  bool merge_short(std::string_view piece, std::vector<std::uint32_t>& into) const;
  bool merge_by_windows(Worker& worker, std::string_view piece, std::size_t window) const;
  template <class Id, class Use>
  void each_token(const Id* ids, std::size_t n_ids, const Use& use) const;
  bool some_unreachable() const;
  bool is_orderly() const;
  bool find_orderly() const;
  // The bytes of a token that text can produce; empty for any other id.
  std::string_view text_bytes_of(std::uint32_t id) const {
    return id < is_text_.size() && is_text_[id] ? tokens_.bytes_of(id) : std::string_view();
  }
  void rules_from_merges(const std::vector<Merge>& merges);
  void rules_from_ranks();

  static constexpr std::size_t kIdleWorkers = 64, kIdleBytes = std::size_t{128} << 20;

  TokenTable tokens_;          // finds only those that text can produce
  std::vector<bool> is_text_;  // by id
  std::array<std::uint32_t, 256> byte_tokens_;
  MergeRules rules_;
  std::tuple<ShortRules<std::uint16_t>, ShortRules<std::uint32_t>> short_;  // the first if is_narrow_
  bool whole_pieces_ = false;
  bool by_rank_;
  std::vector<std::uint32_t> stuck_;                 // by rank: the tokens that smaller ids don't lead to
  mutable std::atomic<std::int8_t> is_orderly_{-1};  // -1: not computed yet
  bool is_narrow_ = true;
  Scanner scanner_;
  mutable std::array<std::atomic<Worker*>, kIdleWorkers> idle_{};  // lock-free, so a fork can't inherit a locked mutex
  mutable std::atomic<std::size_t> n_idle_bytes_{0};
};

}  // namespace webtext
