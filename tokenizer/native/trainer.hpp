// Byte-pair training over counted pieces, equal to HF tokenizers' BpeTrainer merge for merge.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include "piece_counts.hpp"
#include "token_table.hpp"

namespace webtext {

struct TrainedMerge {
  std::uint32_t left, right, token;
  std::int64_t count;  // how often the pair occurred
};

struct Goal {
  std::size_t n_tokens;            // no more merges when there are so many tokens, bytes and ids without bytes included
  std::int64_t min_frequency = 1;  // nor when no pair occurs so often
  std::size_t max_token_length = std::numeric_limits<std::size_t>::max();  // HF's rule: see `train_merges`
};

// Appends the tokens of a piece.
using EncodePiece = std::function<void(const Byte* bytes, std::size_t n_bytes, std::vector<std::uint32_t>& tokens)>;

// Gets the number of merges so far, every ten milliseconds or so, while pieces are read as well; ends training by
// throwing.
using Progress = std::function<void(std::size_t n_merges)>;

// GPT-2's 256 bytes, which training starts from when there is no vocabulary to extend.
TokenTable byte_tokens();
EncodePiece encode_bytes();

// The merges in order, learned from pieces that `encode` gives as tokens of `tokens`; new tokens follow those.
// The most frequent pair is merged next; among equals the one with the smallest (left, right). Two tokens merge when
// both are bytes or their bytes together are fewer than `max_token_length`. Every merge gives a new token: two whose
// bytes together are a token already stay apart, which cannot happen to a vocabulary that was learned so from the
// start. Throws std::length_error for 2 GiB of distinct pieces, or 2^31 places of pairs.
std::vector<TrainedMerge> train_merges(const PieceCounts& pieces, TokenTable tokens, const EncodePiece& encode,
                                       const Goal& goal, const Progress& progress);

}  // namespace webtext
