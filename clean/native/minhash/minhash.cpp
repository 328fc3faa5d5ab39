// Shingles, permutations, signatures.
//
// Time (570 words per text, AVX2): about half for folding and hashing words, half for permutations. Words are found
// eight bytes at a time: most end within the first load, so a word costs one well-predicted branch. The shingle hash is
// a rolling hash (words.hpp): a polynomial in the word hashes; the leaving word is subtracted.
#include "minhash/minhash.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace webtext::minhash {
namespace {

// A vector register of the path's instruction set; compilers turn arithmetic on it into single instructions. Each path
// has its own width: 64-byte vectors on every path would be split into smaller ones, and spill registers.
template <size_t kBytes>
struct Register {
  typedef uint32_t Lanes __attribute__((vector_size(kBytes)));
};

constexpr size_t kPadding = 64;  // permutations are padded to a multiple of the widest path's block

constexpr size_t padded(size_t count) { return (count + kPadding - 1) / kPadding * kPadding; }

// MurmurHash3's 32-bit finalizer (Appleby), which datasketch applies before permuting.
uint32_t murmur_mix(uint32_t x) {
  x = (x ^ x >> 16) * 0x85EBCA6Bu;
  x = (x ^ x >> 13) * 0xC2B2AE35u;
  return x ^ x >> 16;
}

// Computes the minima of a[j] * values[i] + b[j] over i. Four registers of permutations are kept for a pass over all
// values.
template <size_t kBytes>
[[gnu::always_inline]] inline void minima_of(const uint32_t* values, size_t size, const uint32_t* a, const uint32_t* b,
                                             uint32_t* minima, size_t count) {
  using Lanes = typename Register<kBytes>::Lanes;
  constexpr size_t kLanes = kBytes / sizeof(uint32_t), kRegisters = 4;
  for (size_t first = 0; first < count; first += kRegisters * kLanes) {
    Lanes factor[kRegisters], increment[kRegisters], minimum[kRegisters];
    std::memcpy(factor, a + first, sizeof factor);
    std::memcpy(increment, b + first, sizeof increment);
    std::memset(minimum, 0xFF, sizeof minimum);
    for (size_t i = 0; i < size; ++i) {
      for (size_t r = 0; r < kRegisters; ++r) {
        const Lanes permuted = factor[r] * values[i] + increment[r];
        minimum[r] = permuted < minimum[r] ? permuted : minimum[r];
      }
    }
    std::memcpy(minima + first, minimum, sizeof minimum);
  }
}

void minima_portable(const uint32_t* values, size_t size, const uint32_t* a, const uint32_t* b, uint32_t* minima,
                     size_t count) {
  minima_of<16>(values, size, a, b, minima, count);  // SSE2 and NEON registers
}

#if defined(__x86_64__)
#define WEBTEXT_HAS_X86_PATHS 1
[[gnu::target("avx2")]] void minima_avx2(const uint32_t* values, size_t size, const uint32_t* a, const uint32_t* b,
                                         uint32_t* minima, size_t count) {
  minima_of<32>(values, size, a, b, minima, count);
}
[[gnu::target("avx512f")]] void minima_avx512(const uint32_t* values, size_t size, const uint32_t* a, const uint32_t* b,
                                              uint32_t* minima, size_t count) {
  minima_of<64>(values, size, a, b, minima, count);
}
#endif

}  // namespace

std::span<const uint64_t> Shingler::shingles(std::string_view text) {
  shingles_.clear();
  const auto rest = ngrams_.each(text, [&](uint64_t hash, std::string_view) { shingles_.push_back(hash); });
  if (shingles_.empty() && rest) shingles_.push_back(*rest);
  return shingles_;
}

std::vector<std::string> simd_paths() {
  std::vector<std::string> paths;
#ifdef WEBTEXT_HAS_X86_PATHS
  if (__builtin_cpu_supports("avx512f")) paths.push_back("avx512");
  if (__builtin_cpu_supports("avx2")) paths.push_back("avx2");
#endif
  paths.push_back("portable");
  return paths;
}

Permutations::Permutations(std::span<const uint32_t> a, std::span<const uint32_t> b, const std::string& path)
    : count_(a.size()), minima_(path_of(path)), a_(a.begin(), a.end()), b_(b.begin(), b.end()) {
  a_.resize(padded(count_));
  b_.resize(padded(count_));
  minima_row_.resize(padded(count_));
}

Permutations::Minima Permutations::path_of(const std::string& path) {
  const std::vector<std::string> paths = simd_paths();
  const std::string chosen = path.empty() ? paths.front() : path;
  if (std::find(paths.begin(), paths.end(), chosen) == paths.end()) {
    throw std::invalid_argument("this processor has no path '" + chosen + "'");
  }
#ifdef WEBTEXT_HAS_X86_PATHS
  if (chosen == "avx512") return minima_avx512;
  if (chosen == "avx2") return minima_avx2;
#endif
  return minima_portable;
}

void Permutations::sign(std::span<const uint64_t> shingles, uint32_t* signature) {
  values_.resize(shingles.size());
  for (size_t i = 0; i < shingles.size(); ++i) values_[i] = murmur_mix(static_cast<uint32_t>(shingles[i] >> 32));
  minima_(values_.data(), values_.size(), a_.data(), b_.data(), minima_row_.data(), minima_row_.size());
  std::copy_n(minima_row_.begin(), count_, signature);
}

size_t agreement(const uint8_t* left, const uint8_t* right, size_t count) {
  uint32_t agreeing = 0;
  for (size_t i = 0; i < count; ++i) agreeing += left[i] == right[i];
  return agreeing;
}

double jaccard(std::span<const uint64_t> left, std::span<const uint64_t> right) {
  size_t l = 0, r = 0, both = 0;
  while (l < left.size() && r < right.size()) {
    const uint64_t x = left[l], y = right[r];
    both += x == y;
    l += x <= y;
    r += y <= x;
  }
  const size_t either = left.size() + right.size() - both;
  return either == 0 ? 0.0 : static_cast<double>(both) / static_cast<double>(either);
}

}  // namespace webtext::minhash
