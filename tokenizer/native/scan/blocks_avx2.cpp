#include <immintrin.h>

#include "scan/blocks.hpp"

namespace webtext {
namespace {

class Avx2 : public EndsByEight {
 public:
  explicit Avx2(const Byte* at)
      : low_(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))),
        high_(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32))) {}

  Bits equal(char byte) const {
    return marked([byte](__m256i bytes) { return _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(byte)); });
  }
  Bits between(char first, char n) const {
    return marked([first, n](__m256i bytes) {
      const __m256i from_first = _mm256_sub_epi8(bytes, _mm256_set1_epi8(first));
      return _mm256_cmpeq_epi8(_mm256_min_epu8(from_first, _mm256_set1_epi8(static_cast<char>(n - 1))), from_first);
    });
  }
  Bits high() const {
    return marked([](__m256i bytes) { return bytes; });
  }

 private:
  template <class Test>
  Bits marked(const Test& test) const {
    const auto mask = [](__m256i bytes) { return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes)); };
    return mask(test(low_)) | static_cast<Bits>(mask(test(high_))) << 32;
  }

  __m256i low_, high_;
};

}  // namespace

Scanner::Cut block_scanner_avx2(std::size_t pattern) { return block_scanner<Avx2>(pattern); }

}  // namespace webtext
