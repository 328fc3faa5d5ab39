#include <immintrin.h>

#include "scan/gpt2_blocks.hpp"

namespace webtext {
namespace {

struct Avx2 {
  static BlockClasses classify(const Byte* at) {
    const Half low(at), high(at + 32);
    const auto both = [](std::uint32_t low, std::uint32_t high) {
      return low | static_cast<std::uint64_t>(high) << 32;
    };
    BlockClasses classes;
    classes.letter = both(low.letters(), high.letters());
    classes.number = both(low.between('0', 10), high.between('0', 10));
    classes.blank = both(low.equal(' '), high.equal(' '));
    classes.space = classes.blank | both(low.between('\t', 5), high.between('\t', 5));
    classes.apostrophe = both(low.equal('\''), high.equal('\''));
    classes.high = both(mask(low.bytes), mask(high.bytes));
    return classes;
  }

  static std::size_t write_ends(std::uint64_t bits, std::uint32_t base, std::uint32_t* ends) {
    const auto n_ends = static_cast<std::size_t>(__builtin_popcountll(bits));
    for (std::size_t written = 0; written < n_ends;
         written += 8) {  // eight at once: the number is rarely predicted right
      for (std::size_t index = 0; index < 8; ++index, bits &= bits - 1) {
        ends[written + index] = base + static_cast<std::uint32_t>(_tzcnt_u64(bits));
      }
    }
    return n_ends;
  }

 private:
  static std::uint32_t mask(__m256i bytes) { return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes)); }

  struct Half {
    explicit Half(const Byte* at) : bytes(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))) {}

    static std::uint32_t between(__m256i values, char first, int n) {
      const __m256i from_first = _mm256_sub_epi8(values, _mm256_set1_epi8(first));
      return mask(
          _mm256_cmpeq_epi8(_mm256_min_epu8(from_first, _mm256_set1_epi8(static_cast<char>(n - 1))), from_first));
    }
    std::uint32_t between(char first, int n) const { return between(bytes, first, n); }
    std::uint32_t letters() const { return between(_mm256_or_si256(bytes, _mm256_set1_epi8(0x20)), 'a', 26); }
    std::uint32_t equal(char byte) const { return mask(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(byte))); }

    __m256i bytes;
  };
};

}  // namespace

std::size_t cut_gpt2_avx2(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                          std::size_t max) {
  return cut_by_blocks<Avx2>(classes, begin, end, ends, max);
}

}  // namespace webtext
