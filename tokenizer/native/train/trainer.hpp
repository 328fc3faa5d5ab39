// Byte-pair training over counted pieces, equal to HF tokenizers' BpeTrainer merge for merge.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include "encode/merge_rules.hpp"
#include "encode/token_table.hpp"
#include "train/piece_counts.hpp"

namespace webtext {

struct Goal {
  std::size_t n_tokens;            // training ends at this number of tokens, including bytes and ids without bytes,
  std::int64_t min_frequency = 1;  // or when no pair occurs this often
  std::size_t max_token_length = std::numeric_limits<std::size_t>::max();  // HF's rule: see `train_merges`
};

// Appends the tokens of a piece.
using EncodePiece = std::function<void(std::string_view piece, std::vector<std::uint32_t>& tokens)>;

// Called about every ten milliseconds with the number of merges so far and the share of pieces that are loaded, for
// their first merge. An exception ends training.
using Progress = std::function<void(std::size_t n_merges, double loaded)>;

// GPT-2's 256 bytes: the initial tokens if there is no vocabulary to extend.
TokenTable byte_tokens();
EncodePiece encode_bytes();

// Returns the merges in order. `encode` converts pieces to ids of `tokens`; new tokens follow those. The most frequent
// pair is merged next; on ties, the one with the smallest (left, right). Two tokens may merge if both are bytes or if
// they have fewer than `max_token_length` bytes together. Every merge creates a new token: two tokens whose joined
// bytes are a token already don't merge, which happens only with a `tokens` that wasn't learned this way. Throws
// std::length_error for 2 GiB of distinct pieces, or 2^31 places of pairs.
//
// Takes about `pieces.max_memory()` bytes. If the pieces need more, those without a frequent pair wait in a file (see
// selection.hpp).
std::vector<Merge> train_merges(PieceCounts& pieces, TokenTable tokens, const EncodePiece& encode, const Goal& goal,
                                const Progress& progress);

}  // namespace webtext
