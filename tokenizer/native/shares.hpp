// Dividing long texts into shares.
#pragma once

#include <cstddef>

#include "safe_cut.hpp"
#include "scanner.hpp"

namespace webtext {

inline constexpr std::ptrdiff_t kJobBytes = 1 << 18;

// The end of the first share: the complete text, or about kJobBytes of it, cut where every pattern cuts.
inline const Byte* share_end(const Scanner& scanner, const Byte* begin, const Byte* end) {
  if (end - begin <= 2 * kJobBytes) return end;
  return safe_cut(scanner.classes(), begin, begin + kJobBytes, end);
}

}  // namespace webtext
