#include "scan/block_scanners.hpp"

#include <bit>

#include "scan/runs.hpp"

namespace webtext {

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
