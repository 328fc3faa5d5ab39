#include "minhash/settle.hpp"

#include <numeric>

#include "minhash/minhash.hpp"

namespace webtext::minhash {
namespace {

// The nodes stored in buckets, in priority order: a ring of entries per bucket, addressed by its last entry.
class Members {
 public:
  explicit Members(size_t n_buckets) : last_(n_buckets, -1), length_(n_buckets, 0) {}

  // Call it in priority order. Returns how many buckets were full.
  int64_t add(size_t node, std::span<const int32_t> buckets, size_t limit) {
    int64_t full = 0;
    for (const int32_t bucket : buckets) {
      if (bucket < 0) continue;
      if (length_[bucket] >= limit) {
        ++full;
        continue;
      }
      const auto added = static_cast<int64_t>(entries_.size());
      const int64_t last = last_[bucket];
      entries_.push_back({static_cast<uint32_t>(node), last < 0 ? added : entries_[last].next});
      if (last >= 0) entries_[last].next = added;
      last_[bucket] = added;
      ++length_[bucket];
    }
    return full;
  }

  // Calls visit(node) for each bucket's members in priority order; if it returns false, continues with the next bucket.
  template <typename Visit>
  void each(std::span<const int32_t> buckets, Visit visit) const {
    for (const int32_t bucket : buckets) {
      if (bucket < 0 || last_[bucket] < 0) continue;
      int64_t at = last_[bucket];
      do {
        at = entries_[at].next;
      } while (visit(entries_[at].node) && at != last_[bucket]);
    }
  }

 private:
  struct Entry {
    uint32_t node;
    int64_t next;  // the bucket's last entry points to its first
  };
  std::vector<int64_t> last_;
  std::vector<size_t> length_;
  std::vector<Entry> entries_;
};

struct Match {
  int64_t node = -1;
  double similarity = 0.0;
};

class Settler {
 public:
  Settler(const Nodes& nodes, const Rules& rules)
      : nodes_(nodes), rules_(rules), n_buckets_(count_buckets()), stamp_(nodes.size(), -1), parent_(nodes.size()) {
    result_.decision.assign(nodes.size(), static_cast<uint8_t>(Decision::kKept));
    result_.kept.assign(nodes.size(), -1);
    result_.similarity.assign(nodes.size(), 0.0);
    std::iota(parent_.begin(), parent_.end(), uint32_t{0});
  }

  Verdicts run() {
    Members kept(n_buckets_), dropped(n_buckets_), kept_validation(n_buckets_);
    for (size_t node = 0; node < nodes_.size(); ++node) {
      if (fixed(node)) remember(in_train(node) ? kept : kept_validation, node);
    }
    for (size_t node = 0; node < nodes_.n_train; ++node) {
      if (fixed(node)) continue;
      Match match = best(kept, node);
      const Match held_out = best(kept_validation, node);  // only fixed nodes so far: train outranks the others
      if (held_out.similarity > match.similarity) match = held_out;
      if (match.node < 0) {
        remember(kept, node);
      } else {
        drop(node, match, Decision::kDuplicate);
        // dropped nodes are remembered, so that validation nodes near them only are dropped too
        if (in_train(static_cast<size_t>(match.node))) remember(dropped, node);
      }
    }
    drop_validation_near_train(kept, dropped);
    for (size_t node = nodes_.n_train; node < nodes_.size(); ++node) {
      if (fixed(node) || result_.decision[node] != static_cast<uint8_t>(Decision::kKept)) continue;
      const Match match = best(kept_validation, node);
      if (match.node >= 0) {
        drop(node, match, Decision::kDuplicate);
      } else {
        remember(kept_validation, node);
      }
    }
    return std::move(result_);
  }

 private:
  // Joins validation nodes by their edges, and drops each cluster that reaches train, even through dropped train nodes:
  // held-out text must not leak. Indexed nodes are left out, because they are kept anyway.
  void drop_validation_near_train(const Members& kept, const Members& dropped) {
    Members validation(n_buckets_);
    std::vector<int64_t> train_of(nodes_.size(), -1);  // by root of a validation cluster: the first train node named
    for (size_t node = nodes_.n_train; node < nodes_.size(); ++node) {
      if (fixed(node)) continue;
      Match match = best(kept, node);
      if (match.node < 0) {
        const int64_t near = first(dropped, node);
        if (near >= 0) match = exact(node, result_.kept[near]);
      }
      if (match.node >= 0) drop(node, match, Decision::kDuplicateOfTrain);
      begin_visit(node);
      validation.each(buckets(node), [&](size_t other) {
        if (first_visit(other) && root(other) != root(node) && similarity(node, other) >= rules_.threshold) {
          join(parent_, static_cast<uint32_t>(node), static_cast<uint32_t>(other));
        }
        return true;
      });
      remember(validation, node);
    }
    for (size_t node = nodes_.n_train; node < nodes_.size(); ++node) {
      int64_t& train = train_of[root(node)];
      const int64_t named = result_.kept[node];
      if (named >= 0 && (train < 0 || named < train)) train = named;
    }
    for (size_t node = nodes_.n_train; node < nodes_.size(); ++node) {
      const int64_t train = train_of[root(node)];
      if (train >= 0 && result_.kept[node] < 0) drop(node, exact(node, train), Decision::kDuplicateOfTrain);
    }
  }

  // Returns the most similar member with an edge to node; if several are equal, the first in priority.
  Match best(const Members& members, size_t node) {
    Match found;
    begin_visit(node);
    members.each(buckets(node), [&](size_t other) {
      if (!first_visit(other)) return true;
      const double similar = similarity(node, other);
      if (similar < rules_.threshold) return true;
      const auto candidate = static_cast<int64_t>(other);
      if (similar > found.similarity || (similar == found.similarity && candidate < found.node)) {
        found = {candidate, similar};
      }
      return true;
    });
    return found;
  }

  // Returns the first member in priority with an edge to node, or -1.
  int64_t first(const Members& members, size_t node) {
    int64_t found = -1;
    begin_visit(node);
    members.each(buckets(node), [&](size_t other) {
      const auto candidate = static_cast<int64_t>(other);
      if (found >= 0 && candidate >= found) return false;  // as are all later ones in this bucket
      if (first_visit(other) && similarity(node, other) >= rules_.threshold) found = candidate;
      return true;
    });
    return found;
  }

  // Returns the exact Jaccard, or 0 if the signatures show that it is below the threshold.
  double similarity(size_t left, size_t right) {
    const size_t k = nodes_.permutations;
    const uint8_t* signatures = nodes_.signatures.data();
    if (agreement(signatures + left * k, signatures + right * k, k) < rules_.min_agreement) return 0.0;
    return exact(left, static_cast<int64_t>(right)).similarity;
  }

  Match exact(size_t left, int64_t right) {
    ++result_.verified;
    return {right, jaccard(shingles(left), shingles(static_cast<size_t>(right)))};
  }

  void drop(size_t node, const Match& match, Decision decision) {
    result_.decision[node] = static_cast<uint8_t>(decision);
    result_.kept[node] = match.node;
    result_.similarity[node] = match.similarity;
  }

  void remember(Members& members, size_t node) {
    result_.beyond_limit += members.add(node, buckets(node), rules_.bucket_limit);
  }

  bool fixed(size_t node) const { return nodes_.fixed[node] != 0; }
  bool in_train(size_t node) const { return node < nodes_.n_train; }

  // Two nodes often share several buckets; a stamp per node ensures that each pair is compared once.
  void begin_visit(size_t node) {
    ++visit_;
    stamp_[node] = visit_;
  }
  bool first_visit(size_t other) {
    if (stamp_[other] == visit_) return false;
    stamp_[other] = visit_;
    return true;
  }

  size_t root(size_t node) { return find_root(parent_, static_cast<uint32_t>(node)); }

  std::span<const int32_t> buckets(size_t node) const {
    return nodes_.buckets.subspan(node * nodes_.bands, nodes_.bands);
  }
  std::span<const uint64_t> shingles(size_t node) const {
    const auto begin = static_cast<size_t>(nodes_.begins[node]), end = static_cast<size_t>(nodes_.ends[node]);
    return nodes_.shingles.subspan(begin, end - begin);
  }
  size_t count_buckets() const {
    int32_t highest = -1;
    for (const int32_t bucket : nodes_.buckets) highest = bucket > highest ? bucket : highest;
    return static_cast<size_t>(highest + 1);
  }

  const Nodes& nodes_;
  const Rules& rules_;
  size_t n_buckets_;
  std::vector<int64_t> stamp_;
  std::vector<uint32_t> parent_;
  int64_t visit_ = 0;
  Verdicts result_;
};

}  // namespace

Verdicts settle(const Nodes& nodes, const Rules& rules) { return Settler(nodes, rules).run(); }

}  // namespace webtext::minhash
