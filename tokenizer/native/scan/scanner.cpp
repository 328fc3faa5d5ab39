#include "scan/scanner.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "scan/cl100k.hpp"
#include "scan/gpt2.hpp"
#include "scan/o200k.hpp"

namespace webtext {
namespace {

// `Pieces{classes}(begin, end)` returns one past the last byte of the piece at `begin`.
template <class Pieces>
std::size_t cut_by_pieces(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                          std::size_t max) {
  std::size_t n_pieces = 0;
  for (const Byte* at = begin; at < end && n_pieces < max;) {
    at = Pieces{classes}(at, end);
    if (at - begin > kFarthestEnd) {
      if (n_pieces == 0) throw std::length_error("a piece of 4 GiB or more");
      break;
    }
    ends[n_pieces++] = static_cast<std::uint32_t>(at - begin);
  }
  return n_pieces;
}

Scanner::Cut cut_of(std::string_view name, SimdLevel level) {
  const auto pattern =
      static_cast<std::size_t>(std::find(kPatterns.begin(), kPatterns.end(), name) - kPatterns.begin());
  if (pattern == kPatterns.size()) throw std::invalid_argument("no scanner for the pattern " + std::string(name));
#ifdef WEBTEXT_X86
  if (level == SimdLevel::kAvx512) return block_scanner_avx512(pattern);
  if (level == SimdLevel::kAvx2) return block_scanner_avx2(pattern);
#elif defined(WEBTEXT_NEON)
  if (level == SimdLevel::kNeon) return block_scanner_neon(pattern);
#endif
  return kByPieces[pattern];
}

}  // namespace

const Scanner::Cut kByPieces[] = {&cut_by_pieces<Gpt2Pieces>, &cut_by_pieces<Cl100kPieces<3, true>>,
                                  &cut_by_pieces<Cl100kPieces<3, false>>, &cut_by_pieces<Cl100kPieces<1, false>>,
                                  &cut_by_pieces<O200kPieces>};

Scanner::Scanner(std::string_view pattern, std::string_view unicode_version, SimdLevel level)
    : classes_(ClassTable::of(unicode_version)), cut_(cut_of(pattern, level)) {}

HighBytes classify_high(const ClassTable& classes, const Byte* block, const Byte* end, Bits high) {
  HighBytes found;
  while (high) {
    const int at = std::countr_zero(high);
    const CodePoint point = code_at(block + at, end);
    const Bits bytes = ((Bits{1} << point.n_bytes) - 1) << at;
    found.of_class[static_cast<Byte>(classes.cased(point.code))] |= bytes;
    found.later |= bytes & (bytes - 1);
    high &= ~bytes;
  }
  return found;
}

std::uint32_t contraction_at(const Byte* at, const Byte* end, bool any_case) {
  return static_cast<std::uint32_t>(any_case ? contraction<true>(at, end) : contraction<false>(at, end));
}

}  // namespace webtext
