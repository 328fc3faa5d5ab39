// MinHash over word shingles: signatures of UTF-8 texts, and the similarity of signatures and of shingle sets.
// The readable twin is clean/dedup/reference.py; both return equal results for every input.
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

// Returns datasketch 2's hashes of a text's shingles, in text order with repeats: the first word of the SHA-1 of each
// n-gram of `width` words with blanks between them, then MurmurHash3's finalizer.
std::vector<uint32_t> datasketch_shingles(std::string_view text, size_t width);

// k permutations of 32-bit values, x -> a[i] * x + b[i] mod 2^32 with odd a[i], and their minima over a set.
class Permutations {
 public:
  // Throws std::invalid_argument for a path that this processor cannot run; "" selects the best one.
  Permutations(size_t count, const std::string& path);
  Permutations(std::span<const uint32_t> a, std::span<const uint32_t> b, const std::string& path);
  size_t count() const { return count_; }
  // Returns the minimum of each permutation over the values, all ones without values; valid until the next call.
  std::span<const uint32_t> minima(std::span<const uint32_t> values);
  // Sets signature[i] to the low 8 bits of the minimum of permutation i over the high halves of the shingles; all ones
  // without shingles. Different minima agree in 8 bits once in 256, which adds (1 - J) / 256 to the agreement (Li and
  // Koenig, "b-bit minwise hashing", 2010): no pair is missed, a few more are verified. 16 bits doubled the files and
  // dropped the same documents.
  void sign(std::span<const uint64_t> shingles, uint8_t* signature);

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
