#include "scan/scanner.hpp"

#include <algorithm>
#include <string>

#include "scan/block_scanners.hpp"

namespace webtext {
namespace {

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

Scanner::Scanner(std::string_view pattern, std::string_view unicode_version, SimdLevel level)
    : classes_(ClassTable::of(unicode_version)), cut_(cut_of(pattern, level)) {}

}  // namespace webtext
