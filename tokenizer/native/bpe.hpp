// Byte-level BPE with a fixed vocabulary: bytes to tokens and back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "merge_rules.hpp"
#include "merging.hpp"
#include "scanner.hpp"

namespace webtext {

// What one thread needs while it encodes: scratch memory and the pieces it met before.
class Worker;

struct Merge {
  std::uint32_t left, right;
};

class Bpe {
 public:
  // tokens[id] are the bytes of a token, empty where text never gives that id; special tokens have an id and bytes,
  // and only decoding knows them. `merges` are in order of rank; without them any two tokens merge whose joined bytes
  // are a token, the smallest id first. With `whole_pieces` a piece that is a token is not merged but taken as it is.
  // Throws std::invalid_argument when this is no byte-level vocabulary.
  Bpe(const Scanner& scanner, std::vector<std::string> tokens, const std::optional<std::vector<Merge>>& merges,
      bool whole_pieces, std::vector<std::pair<std::uint32_t, std::string>> special_tokens);
  ~Bpe();

  // Appends the tokens of a text, cut by the scanner. `Token` is uint16_t or uint32_t.
  template <class Token>
  void encode(const Byte* begin, const Byte* end, std::vector<Token>& out) const;

  // The same for a text that was cut elsewhere: piece i ends at piece_ends[i].
  void encode_pieces(const Byte* begin, const std::int64_t* piece_ends, std::size_t n_pieces,
                     std::vector<std::uint32_t>& out) const;

  // The tokens of many texts one after the other, and where each begins (n + 1 offsets).
  template <class Token>
  void encode_many(const std::vector<std::string_view>& texts, unsigned n_threads, std::vector<Token>& tokens,
                   std::int64_t* offsets) const;

  // The bytes of a token; empty for an id that has none.
  std::string_view bytes_of(std::uint64_t id) const {
    return id < starts_.size() - 1 ? std::string_view(bytes_.data() + starts_[id], starts_[id + 1] - starts_[id])
                                   : std::string_view();
  }

  // What other ways of merging work with.
  const MergeRules& rules() const { return rules_; }
  const Scanner& scanner() const { return scanner_; }
  std::uint32_t byte_token(Byte byte) const { return byte_tokens_[byte]; }

  // Per token the two tokens it is merged from when only smaller ids may merge: the merges that a rank file leaves out.
  // Tokens that merging cannot reach are skipped.
  std::vector<Merge> merges_by_rank() const;

 private:
  class Lease;

  template <class Token>
  void encode_piece(Worker& worker, const Byte* bytes, std::size_t n_bytes, std::vector<Token>& out) const;
  const std::vector<std::uint32_t>& merge_bytes(Worker& worker, const Byte* bytes, std::size_t n_bytes) const;
  void rules_from_merges(const std::vector<Merge>& merges);
  void rules_from_ranks();

  static constexpr std::size_t kIdleWorkers = 64;

  std::string bytes_;  // of all tokens, one after the other
  std::vector<std::uint64_t> starts_;
  std::vector<std::uint32_t> index_;  // open addressing: token by the hash of its bytes
  std::array<std::uint32_t, 256> byte_tokens_;
  MergeRules rules_;
  bool whole_pieces_;
  Scanner scanner_;
  mutable std::array<std::atomic<Worker*>, kIdleWorkers> idle_{};  // lock-free, so a fork cannot inherit a held lock

  std::uint32_t find(const Byte* bytes, std::size_t n_bytes) const;
  void build_index(const std::vector<std::string>& tokens);
};

}  // namespace webtext
