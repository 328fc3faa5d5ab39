#include "scan/gpt2.hpp"

#include "base/simd.hpp"
#include "scan/runs.hpp"

namespace webtext {
namespace {

class Gpt2Pieces {
 public:
  explicit Gpt2Pieces(const ClassTable& classes) : classes_(classes) {}

  // One past the last byte of the piece that starts at `begin` (< end).
  const Byte* operator()(const Byte* begin, const Byte* end) const {
    if (const int n_bytes = contraction<false>(begin, end)) return begin + n_bytes;
    const Character first = character_at(classes_, begin, end);
    const Byte* next = begin + first.n_bytes;
    if (first.kind != CharClass::kSpace) return run_end(classes_, first.kind, next, end);
    if (next == end) return end;
    const Character second = character_at(classes_, next, end);
    if (second.kind == CharClass::kSpace) return blanks_end<false, false>(classes_, begin, end);
    return *begin == ' ' ? run_end(classes_, second.kind, next + second.n_bytes, end) : next;
  }

 private:
  const ClassTable& classes_;
};

std::size_t cut_gpt2_scalar(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                            std::size_t max) {
  return cut_by_pieces(Gpt2Pieces(classes), begin, end, ends, max);
}

}  // namespace

Scanner::Cut gpt2_cut() {
#ifdef WEBTEXT_X86
  if (simd_level() >= SimdLevel::kAvx512) return &cut_gpt2_avx512;
  if (simd_level() >= SimdLevel::kAvx2) return &cut_gpt2_avx2;
#endif
  return &cut_gpt2_scalar;
}

int gpt2_contraction(const Byte* begin, const Byte* end) { return contraction<false>(begin, end); }

HighBytes classify_high(const ClassTable& classes, const Byte* block, const Byte* end, std::uint64_t high,
                        std::uint32_t n_skipped) {
  HighBytes found;
  high &= ~std::uint64_t{0} << n_skipped;
  while (high) {
    const auto at = static_cast<std::uint32_t>(__builtin_ctzll(high));
    const Character character = character_at(classes, block + at, end);
    const std::uint32_t after = at + character.n_bytes;
    const std::uint64_t bits = ((std::uint64_t{1} << character.n_bytes) - 1) << at;
    if (character.kind == CharClass::kLetter) found.letter |= bits;
    if (character.kind == CharClass::kNumber) found.number |= bits;
    if (character.kind == CharClass::kSpace) {
      found.space |= bits;
      if (after <= 64)
        (character.n_bytes == 2 ? found.space_ends_2 : found.space_ends_3) |= std::uint64_t{1} << (after - 1);
    }
    if (after >= 64) {
      found.n_over = after - 64;
      found.over = character.kind;
      break;
    }
    high &= ~std::uint64_t{0} << after;
  }
  return found;
}

bool space_at(const ClassTable& classes, const Byte* at, const Byte* end) {
  return character_at(classes, at, end).kind == CharClass::kSpace;
}

std::size_t cut_gpt2_across(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t first,
                            std::uint32_t beyond, std::uint32_t* ends, std::size_t max) {
  return cut_by_pieces(Gpt2Pieces(classes), begin, end, ends, max, first, beyond);
}

}  // namespace webtext
