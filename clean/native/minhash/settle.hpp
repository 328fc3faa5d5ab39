// Decides which documents are kept: greedily in priority order, over verified edges.
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
  std::vector<int64_t> kept;       // the node that is kept instead; -1 for a kept node
  std::vector<double> similarity;  // exact Jaccard with that node
  int64_t verified = 0;            // pairs whose exact Jaccard was computed
  int64_t beyond_limit = 0;        // memberships that full buckets didn't store
};

// `settle` in tests/reference/minhash.py states which nodes are dropped and which node each of them names. Here edges
// are computed on demand: for train only those to kept nodes, so 10^5 pages of one template cost 10^5 comparisons. That
// is why no name depends on an edge between two dropped train nodes.
Verdicts settle(const Nodes& nodes, const Rules& rules);

// Connected components by union-find. parents[i] is another member of i's component, or i itself if i is the root. The
// root is the smallest member, so components don't depend on the order of pairs.
inline uint32_t find_root(std::span<uint32_t> parents, uint32_t node) {
  while (parents[node] != node) {
    parents[node] = parents[parents[node]];
    node = parents[node];
  }
  return node;
}

inline void join(std::span<uint32_t> parents, uint32_t left, uint32_t right) {
  left = find_root(parents, left);
  right = find_root(parents, right);
  if (left < right) {
    parents[right] = left;
  } else {
    parents[left] = right;
  }
}

}  // namespace webtext::minhash
