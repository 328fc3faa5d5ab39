// Decides which documents are kept: greedily in priority order, over verified edges.
// The readable twin is `settle` in clean/dedup/reference.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace webtext::minhash {

// Nodes are distinct texts: first train, then validation, each in priority order. Fixed nodes come from a kept index:
// they are always kept and not compared with each other.
struct Nodes {
  std::span<const uint8_t> signatures;    // [size, permutations]
  std::span<const int32_t> buckets;       // [size, bands]: a node's bucket, -1 if no other node is in it
  std::span<const uint64_t> shingles;     // sorted sets, in any order
  std::span<const int64_t> begins, ends;  // [size]: each node's set is shingles[begin:end]
  std::span<const uint8_t> fixed;         // [size]: 1 for nodes of an index
  size_t permutations, bands, n_train;

  size_t size() const { return begins.size(); }
};

struct Rules {
  double threshold;      // two nodes of a bucket have an edge if their exact Jaccard is at least this
  size_t min_agreement;  // pairs whose signatures agree in fewer places are not verified
  size_t bucket_limit;   // a bucket stores this many nodes of a kind to compare with, and counts the others
};

enum class Decision : uint8_t { kKept = 0, kDuplicate = 1, kDuplicateOfTrain = 2 };

struct Verdicts {
  std::vector<uint8_t> decision;
  std::vector<int64_t> stays;      // the node that is kept instead; -1 for a kept node
  std::vector<double> similarity;  // exact Jaccard with that node
  int64_t verified = 0;            // pairs whose exact Jaccard was computed
  int64_t beyond_limit = 0;        // memberships that full buckets didn't store
};

// Train nodes are visited in priority order. One is dropped if and only if it has an edge to a kept train node or to a
// fixed node of either split. A validation node is dropped if a path of edges through validation nodes connects it to a
// train node that is kept or was dropped for a train node. The rest of validation is then treated like train.
//
// Each dropped node names a kept node: the most similar one that it has an edge to, the first in priority if several
// are equal. A validation node with edges only to dropped train nodes names the node that the first of them names. One
// that is connected to train only through other validation nodes names the first train node that any node of its
// cluster names.
//
// For train only edges to kept nodes are computed, so 10^5 pages of one template cost 10^5 comparisons. That is why no
// name depends on an edge between two dropped train nodes.
Verdicts settle(const Nodes& nodes, const Rules& rules);

}  // namespace webtext::minhash
