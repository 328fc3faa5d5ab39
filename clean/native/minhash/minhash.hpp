// MinHash over word shingles: signatures of UTF-8 texts, and the similarity of signatures and of shingle sets.
// The readable twin is tests/reference/minhash.py; both return equal results for every input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "words/words.hpp"

namespace webtext::minhash {

// The shingles of a text: a 64-bit hash of each n-gram of `width` words, or of all words if there are fewer.
class Shingler {
 public:
  explicit Shingler(size_t width) : ngrams_(width) {}
  // Returns them in text order with repeats, empty for a text without words; valid until the next call.
  std::span<const uint64_t> shingles(std::string_view text);

 private:
  Ngrams ngrams_;
  std::vector<uint64_t> shingles_;
};

// Returns the code paths this processor can run, best first: "avx512", "avx2", "portable".
std::vector<std::string> simd_paths();

// The permutations x -> a[i] * x + b[i] mod 2^32, with odd a[i], and their minima over the shingles of a text. With
// datasketch's a and b the minima are the hash values of its MinHash (version 2, scheme affine32) over these shingles.
class Permutations {
 public:
  // Throws std::invalid_argument for a path that this processor cannot run; "" selects the best one.
  Permutations(std::span<const uint32_t> a, std::span<const uint32_t> b, const std::string& path);
  // Sets signature[i] to the minimum of permutation i over the mixed high halves of the shingles; all ones without
  // shingles.
  void sign(std::span<const uint64_t> shingles, uint32_t* signature);

 private:
  using Minima = void (*)(const uint32_t* values, size_t size, const uint32_t* a, const uint32_t* b, uint32_t* minima,
                          size_t count);
  static Minima path_of(const std::string& path);

  size_t count_;
  Minima minima_;
  std::vector<uint32_t> a_, b_, values_, minima_row_;
};

// Returns in how many of `count` places two signatures agree.
size_t agreement(const uint8_t* left, const uint8_t* right, size_t count);

// Returns |left and right| / |left or right| of two sorted sets; 0 if both are empty.
double jaccard(std::span<const uint64_t> left, std::span<const uint64_t> right);

}  // namespace webtext::minhash
