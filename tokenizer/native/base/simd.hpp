// The vector instructions that this machine has and the user allows: WEBTEXT_SIMD=avx2 or =scalar disables better ones.
#pragma once

#include <cstdlib>
#include <string_view>

#if defined(__x86_64__) && defined(__GNUC__)
#define WEBTEXT_X86 1
#endif

namespace webtext {

enum class SimdLevel { kScalar, kAvx2, kAvx512 };

inline SimdLevel simd_level() {
  static const SimdLevel level = [] {
    SimdLevel best = SimdLevel::kScalar;
#ifdef WEBTEXT_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) best = SimdLevel::kAvx2;
    if (best == SimdLevel::kAvx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi2")) {
      best = SimdLevel::kAvx512;
    }
#endif
    const char* set = std::getenv("WEBTEXT_SIMD");
    const std::string_view allowed = set ? set : "";
    if (allowed == "scalar") return SimdLevel::kScalar;
    if (allowed == "avx2" && best > SimdLevel::kAvx2) return SimdLevel::kAvx2;
    return best;
  }();
  return level;
}

}  // namespace webtext
