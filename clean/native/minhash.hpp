// MinHash over word shingles: signatures of UTF-8 texts, and the similarity of signatures and of shingle sets.
// The readable twin is clean/dedup/reference.py; both return equal results for every input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "window.hpp"

namespace webtext::minhash {

// Texts in one buffer: text i is bytes[offsets[i]] up to bytes[offsets[i + 1]].
struct Texts {
  const char* bytes;
  std::span<const int64_t> offsets;

  size_t size() const { return offsets.size() - 1; }
  std::string_view operator[](size_t i) const {
    return {bytes + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i])};
  }
};

// Folds texts to words as clean/dedup/key.py defines them; reuses its memory from text to text.
class Folder {
 public:
  // Returns the folded words, separated by runs of blanks; valid until the next call. Invalid UTF-8 ends a word.
  std::string_view fold(std::string_view text);
  // Returns whether the last text had letters of unspaced scripts.
  bool has_letters() const { return has_letters_; }

 private:
  size_t fold_ascii(const char* text, size_t size);
  size_t fold_character(const char* text, size_t size);
  void apply(const uint8_t* units, size_t size);
  void put(const char* bytes, size_t size, uint8_t kind);
  void grow(size_t size);

  std::string buffer_;
  size_t used_ = 0;
  bool after_single_ = false, has_letters_ = false;
};

// The shingles of a text: a 64-bit hash of each n-gram of `width` words, or of all words if there are fewer.
class Shingler {
 public:
  explicit Shingler(size_t width) : window_(width) {}
  // Returns them in text order with repeats, empty for a text without words; valid until the next call.
  std::span<const uint64_t> shingles(std::string_view text);

 private:
  Folder folder_;
  Window window_;
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
  // Koenig, "b-bit minwise hashing", 2010): no pair is missed, a few more are verified.
  void sign(std::span<const uint64_t> shingles, uint8_t* signature);

 private:
  using Minima = void (*)(const uint32_t* values, size_t size, const uint32_t* a, const uint32_t* b, uint32_t* minima,
                          size_t count);
  static Minima path_of(const std::string& path);

  size_t count_;
  Minima minima_;
  std::vector<uint32_t> a_, b_, values_, minima_row_;
};

// Returns the key of a text: its words with single blanks between them.
std::string key(std::string_view text);

// Returns in how many of `count` places two signatures agree.
size_t agreement(const uint8_t* left, const uint8_t* right, size_t count);

// Returns |left and right| / |left or right| of two sorted sets; 0 if both are empty.
double jaccard(std::span<const uint64_t> left, std::span<const uint64_t> right);

}  // namespace webtext::minhash
