#include <immintrin.h>

#include "scan/blocks.hpp"

namespace webtext {
namespace {

class Avx512 {
 public:
  explicit Avx512(const Byte* at) : bytes_(_mm512_loadu_si512(at)) {}

  Bits equal(char byte) const { return _mm512_cmpeq_epi8_mask(bytes_, _mm512_set1_epi8(byte)); }
  Bits between(char first, char n) const {
    return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(bytes_, _mm512_set1_epi8(first)), _mm512_set1_epi8(n));
  }
  Bits high() const { return _mm512_movepi8_mask(bytes_); }

  static std::size_t write_ends(Bits bits, std::uint32_t base, std::uint32_t* ends) {
    alignas(64) static constexpr Byte kPlaces[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                     16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                                     32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                                     48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    const __m512i places = _mm512_maskz_compress_epi8(bits, _mm512_load_si512(kPlaces));
    const auto n_ends = static_cast<std::size_t>(__builtin_popcountll(bits));
    const __m512i offset = _mm512_set1_epi32(static_cast<int>(base));
    const auto write = [&](__m128i sixteen, int index) {
      _mm512_storeu_si512(ends + 16 * index, _mm512_add_epi32(_mm512_cvtepu8_epi32(sixteen), offset));
    };
    write(_mm512_castsi512_si128(places), 0);
    write(_mm512_extracti32x4_epi32(places, 1), 1);  // always: whether there are more than 16 is rarely predicted right
    if (n_ends > 32) {
      write(_mm512_extracti32x4_epi32(places, 2), 2);
      write(_mm512_extracti32x4_epi32(places, 3), 3);
    }
    return n_ends;
  }

 private:
  __m512i bytes_;
};

}  // namespace

Scanner::Cut block_scanner_avx512(std::size_t pattern) { return block_scanner<Avx512>(pattern); }

}  // namespace webtext
