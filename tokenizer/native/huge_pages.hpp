// Huge pages for large memory, where available: fewer page faults and fewer TLB misses.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace webtext {

// Asks for huge pages (a hint); call it before the memory is touched. Has no effect on small memory.
inline void on_huge_pages(void* memory, std::size_t n_bytes) {
#ifdef MADV_HUGEPAGE
  constexpr std::uintptr_t kHugePage = std::uintptr_t{1} << 21;
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(memory) + kHugePage - 1) & ~(kHugePage - 1);
  const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(memory) + n_bytes) & ~(kHugePage - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace webtext
