// Which documents stay: the greedy choice in priority order, over verified edges.
// The readable twin is `settle` in clean/dedup/reference.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace webtext::minhash {

// Nodes are distinct texts: those of train first, then those of validation, each in priority order. Fixed ones are in
// an index that was kept: they stay whatever comes, and are not compared with each other.
struct Nodes {
  std::span<const uint8_t> signatures;    // [size, permutations]
  std::span<const int32_t> buckets;       // [size, bands]: the bucket a node lies in, -1 where it lies alone
  std::span<const uint64_t> shingles;     // sorted sets, in any order
  std::span<const int64_t> begins, ends;  // [size]: where each node's set lies in shingles
  std::span<const uint8_t> fixed;         // [size]: 1 for nodes of an index
  size_t permutations, bands, n_train;

  size_t size() const { return begins.size(); }
};

struct Rules {
  double threshold;      // an edge joins two nodes of one bucket whose exact Jaccard is at least this
  size_t min_agreement;  // pairs whose signatures agree in fewer places are not verified
  size_t bucket_limit;   // a bucket remembers this many nodes of a kind to compare with, and counts the others
};

enum class Fate : uint8_t { kStays = 0, kDuplicate = 1, kDuplicateOfTrain = 2 };

struct Verdicts {
  std::vector<uint8_t> fate;
  std::vector<int64_t> stays;      // the node that stays in its place; -1 for one that stays itself
  std::vector<double> similarity;  // exact Jaccard with that node
  int64_t verified = 0;            // pairs whose exact Jaccard was computed
  int64_t beyond_limit = 0;        // memberships that full buckets did not remember
};

// A train node is dropped if and only if it has an edge to a train node that stays, visited in priority order, or to a
// fixed node of either split. A validation node is dropped if edges lead from it to a train node, kept or dropped for
// one of train, on any way through validation; what is left of validation is then treated as train was.
//
// Each dropped node names one that stays: of those it has an edge to, the most similar, of equals the first in
// priority. A validation node with edges to dropped train nodes only names what the first of these names; one that is
// joined to train only through others of validation, the first train node that any of those joined to it names.
//
// Train never has to know more than edges to nodes that stay, so 10^5 pages of one template cost 10^5 comparisons:
// therefore no name depends on an edge between two train nodes that are both dropped.
Verdicts settle(const Nodes& nodes, const Rules& rules);

}  // namespace webtext::minhash
