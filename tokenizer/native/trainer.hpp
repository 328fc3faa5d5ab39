// Byte-pair training over counted pieces, equal to HF tokenizers' BpeTrainer merge for merge.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "byte_order.hpp"
#include "piece_counts.hpp"

namespace webtext {

struct TrainedMerge {
  std::uint32_t left, right, token;
};

// The merges in order, until there are `n_tokens` tokens, bytes included, or no pair occurs `min_frequency` times.
// The most frequent pair is merged next; among equals the one with the smallest (left, right). `keep_going` is called
// once per merge; when it returns false, training stops.
std::vector<TrainedMerge> train_merges(const PieceCounts& pieces, std::size_t n_tokens, std::int64_t min_frequency,
                                       const std::function<bool(std::size_t)>& keep_going);

}  // namespace webtext
