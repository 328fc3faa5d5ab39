// MinHash over word shingles: from UTF-8 text to signatures, and what is asked of signatures and shingle sets.
// The readable twin is clean/dedup/reference.py; both give equal results for every input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "window.hpp"

namespace webtext::minhash {

// Texts that lie one after the other: text i is bytes[offsets[i]] up to bytes[offsets[i + 1]].
struct Texts {
  const char* bytes;
  std::span<const int64_t> offsets;

  size_t size() const { return offsets.size() - 1; }
  std::string_view operator[](size_t i) const {
    return {bytes + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i])};
  }
};

// The words of a text as clean/dedup/key.py defines them, kept from text to text so that memory is reused.
class Folder {
 public:
  // Folds text; the words lie in the result between runs of blanks. Valid until the next call.
  // Bytes that are no UTF-8 end a word.
  std::string_view fold(std::string_view text);
  // Whether the text had letters of unspaced scripts.
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

// The shingles of a text: a 64-bit hash of each n-gram of `width` words, or one of all words when there are fewer.
class Shingler {
 public:
  explicit Shingler(size_t width) : window_(width) {}
  // In text order, repeats included; none when the text has no word. Valid until the next call.
  std::span<const uint64_t> shingles(std::string_view text);

 private:
  Folder folder_;
  Window window_;
  std::vector<uint64_t> shingles_;
};

// The code paths this processor can run, best first: "avx512", "avx2", "portable".
std::vector<std::string> simd_paths();

// What datasketch 2 hashes a text's shingles to: SHA-1's first word of each n-gram of `width` words with a blank
// between them, then MurmurHash3's finalizer. In text order, repeats included.
std::vector<uint32_t> datasketch_shingles(std::string_view text, size_t width);

// k permutations of 32-bit values, x -> a[i] * x + b[i] mod 2^32 with odd a[i], and their minima over a set.
class Permutations {
 public:
  // Throws std::invalid_argument for a path that this processor cannot run; "" is the best one.
  Permutations(size_t count, const std::string& path);
  Permutations(std::span<const uint32_t> a, std::span<const uint32_t> b, const std::string& path);
  size_t count() const { return count_; }
  // The minimum of each permutation over the values; all ones of none. Valid until the next call.
  std::span<const uint32_t> minima(std::span<const uint32_t> values);
  // signature[i] = low 8 bits of the minimum of permutation i over the high halves of the shingles. Two differing
  // minima agree in them once in 256, which adds (1 - J) / 256 to the agreement (Li and Koenig, "b-bit minwise
  // hashing", 2010): never a pair missed, a few more to verify. Of no shingle: all ones.
  void sign(std::span<const uint64_t> shingles, uint8_t* signature);

 private:
  using Minima = void (*)(const uint32_t* values, size_t size, const uint32_t* a, const uint32_t* b, uint32_t* minima,
                          size_t count);
  static Minima path_of(const std::string& path);

  size_t count_;
  Minima minima_;
  std::vector<uint32_t> a_, b_, values_, minima_row_;
};

// The key of a text: its words with single blanks between them.
std::string key(std::string_view text);

// In how many of `count` places two signatures agree.
size_t agreement(const uint8_t* left, const uint8_t* right, size_t count);

// |left and right| / |left or right| of two sorted sets; 0 when both are empty.
double jaccard(std::span<const uint64_t> left, std::span<const uint64_t> right);

}  // namespace webtext::minhash
