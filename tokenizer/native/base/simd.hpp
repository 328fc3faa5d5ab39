// The vector instructions that this machine has and the user allows: WEBTEXT_SIMD=avx2, neon or scalar disables those
// after it in kSimdNames.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__)
#define WEBTEXT_X86 1
#elif defined(__aarch64__) && defined(__GNUC__)
#define WEBTEXT_NEON 1  // every such machine has it
#endif

namespace webtext {

enum class SimdLevel { kScalar, kNeon, kAvx2, kAvx512 };
inline constexpr std::array<std::string_view, 4> kSimdNames = {"scalar", "neon", "avx2", "avx512"};

// The levels that can be used, best first; the last is kScalar.
inline const std::vector<SimdLevel>& simd_levels() {
  static const std::vector<SimdLevel> levels = [] {
    std::vector<SimdLevel> found = {SimdLevel::kScalar};
#ifdef WEBTEXT_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) found.push_back(SimdLevel::kAvx2);
    if (found.back() == SimdLevel::kAvx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi2")) {
      found.push_back(SimdLevel::kAvx512);
    }
#elif defined(WEBTEXT_NEON)
    found.push_back(SimdLevel::kNeon);
#endif
    const char* set = std::getenv("WEBTEXT_SIMD");
    const std::string_view name = set ? set : "";
    const auto allowed = std::find(kSimdNames.begin(), kSimdNames.end(), name) - kSimdNames.begin();
    while (static_cast<int>(found.back()) > allowed) found.pop_back();
    std::reverse(found.begin(), found.end());
    return found;
  }();
  return levels;
}

inline SimdLevel simd_level() { return simd_levels().front(); }

}  // namespace webtext
