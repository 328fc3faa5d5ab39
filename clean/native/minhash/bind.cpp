// Bindings of the MinHash core: conversion, GIL release and docstrings only.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>

#include "arrays.hpp"
#include "fold_table.hpp"
#include "minhash/minhash.hpp"
#include "minhash/settle.hpp"

namespace nb = nanobind;
namespace mh = webtext::minhash;
using namespace nb::literals;
using namespace webtext::bind;

namespace {

nb::tuple sign(const In<uint8_t>& bytes, const In<int64_t>& offsets, size_t shingle_words, const In<uint32_t>& a,
               const In<uint32_t>& b, const std::string& path) {
  const Texts texts = texts_of(bytes, offsets);
  const size_t count = a.shape(0);
  if (count == 0 || b.shape(0) != count) throw std::invalid_argument("a and b must be of one length, at least 1");
  std::vector<uint32_t> signatures(texts.size() * count);
  std::vector<int64_t> n_shingles(texts.size());
  {
    nb::gil_scoped_release release;
    mh::Shingler shingler(shingle_words);
    mh::Permutations permutations(span(a), span(b), path);
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto shingles = shingler.shingles(texts[i]);
      n_shingles[i] = static_cast<int64_t>(shingles.size());
      permutations.sign(shingles, signatures.data() + i * count);
    }
  }
  return nb::make_tuple(give_rows(std::move(signatures), count), give(std::move(n_shingles)));
}

nb::tuple shingle_sets(const In<uint8_t>& bytes, const In<int64_t>& offsets, size_t shingle_words) {
  const Texts texts = texts_of(bytes, offsets);
  std::vector<uint64_t> values;
  std::vector<int64_t> ends{0};
  {
    nb::gil_scoped_release release;
    mh::Shingler shingler(shingle_words);
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto shingles = shingler.shingles(texts[i]);
      const auto begin = values.insert(values.end(), shingles.begin(), shingles.end());
      std::sort(begin, values.end());
      values.erase(std::unique(begin, values.end()), values.end());
      ends.push_back(static_cast<int64_t>(values.size()));
    }
  }
  return nb::make_tuple(give(std::move(values)), give(std::move(ends)));
}

void check_sets(std::span<const int64_t> begins, std::span<const int64_t> ends, size_t size) {
  bool within = begins.size() == ends.size();
  for (size_t i = 0; within && i < begins.size(); ++i) {
    within = 0 <= begins[i] && begins[i] <= ends[i] && static_cast<size_t>(ends[i]) <= size;
  }
  if (!within) throw std::invalid_argument("begins and ends must be within the shingles");
}

nb::tuple settle(const InRows<uint8_t>& signatures, const InRows<int32_t>& buckets, const In<uint64_t>& shingles,
                 const In<int64_t>& begins, const In<int64_t>& ends, const In<uint8_t>& fixed, size_t n_train,
                 double threshold, size_t min_agreement, size_t bucket_limit) {
  check_sets(span(begins), span(ends), shingles.shape(0));
  const mh::Nodes nodes{.signatures = span(signatures),
                        .buckets = span(buckets),
                        .shingles = span(shingles),
                        .begins = span(begins),
                        .ends = span(ends),
                        .fixed = span(fixed),
                        .permutations = signatures.shape(1),
                        .bands = buckets.shape(1),
                        .n_train = n_train};
  if (signatures.shape(0) != nodes.size() || buckets.shape(0) != nodes.size() || fixed.shape(0) != nodes.size() ||
      n_train > nodes.size() || nodes.size() > std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument("signatures, buckets and sets must have the same number of nodes");
  }
  mh::Verdicts verdicts;
  {
    nb::gil_scoped_release release;
    verdicts = mh::settle(nodes, {threshold, min_agreement, bucket_limit});
  }
  return nb::make_tuple(give(std::move(verdicts.decision)), give(std::move(verdicts.kept)),
                        give(std::move(verdicts.similarity)), verdicts.verified, verdicts.beyond_limit);
}

nb::bytes key(nb::bytes text) {
  std::string words;
  const std::string_view view(text.c_str(), text.size());
  {
    nb::gil_scoped_release release;
    words = mh::key(view);
  }
  return nb::bytes(words.data(), words.size());
}

}  // namespace

NB_MODULE(_minhash, m) {
  m.doc() = "The C++ core of webtext.clean.dedup; every function has a readable twin in tests/reference/minhash.py.";
  m.attr("UNICODE_VERSION") = webtext::kTableUnicodeVersion;
  m.def("key", &key, "text"_a, "Return the dedup key of UTF-8 text: its folded words with single blanks between them.");
  m.def("sign", &sign, "bytes"_a, "offsets"_a, "shingle_words"_a, "a"_a, "b"_a, "path"_a = "",
        "Sign the texts bytes[offsets[i]:offsets[i + 1]] with the permutations x -> a[j] * x + b[j] mod 2^32.\n\n"
        "Returns (signatures uint32 [n, len(a)], n_shingles int64 [n], repeats counted). A text without words has a\n"
        "signature of all ones. `path` names a code path of simd_paths(); all give equal results.");
  m.def("shingle_sets", &shingle_sets, "bytes"_a, "offsets"_a, "shingle_words"_a,
        "Return the sorted shingle sets of the texts, concatenated: (values uint64, offsets int64 [n + 1]).");
  m.def("settle", &settle, "signatures"_a, "buckets"_a, "shingles"_a, "begins"_a, "ends"_a, "fixed"_a, "n_train"_a,
        "threshold"_a, "min_agreement"_a, "bucket_limit"_a,
        "Decide which nodes are kept.\n\n"
        "Returns (decision uint8, kept node int64, similarity float64, pairs verified, memberships beyond the bucket\n"
        "limit). Nodes are in priority order, the n_train nodes of train first; fixed nodes (1) are always kept.\n"
        "Decision 0: kept; 1: a duplicate; 2: a validation node whose cluster reaches train. The kept node is the one\n"
        "kept instead, or -1.");
  m.def("simd_paths", &mh::simd_paths, "Return the code paths this processor can run, best first.");
}
