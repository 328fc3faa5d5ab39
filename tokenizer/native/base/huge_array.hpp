// A zero-filled array for randomly accessed tables. It uses huge pages where available, so that a look-up costs one
// cache miss instead of two.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#if defined(__linux__) && !defined(MADV_POPULATE_WRITE)
#define MADV_POPULATE_WRITE 23  // Linux 5.14 has it, the headers that wheels are built with may be older
#endif

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

// Memory mapped from the system: zero at first, unmapped at once when freed. For plain data only.
template <class T>
class HugeArray {
 public:
  HugeArray() = default;

  explicit HugeArray(std::size_t size, bool on_huge = true) : mapped_(size * sizeof(T)), size_(size) {
    constexpr std::size_t kHugePage = std::size_t{1} << 21;
    const bool is_huge = mapped_ >= kHugePage;
    if (is_huge) mapped_ += kHugePage;  // to align to a huge page; untouched memory costs nothing
    mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) throw std::bad_alloc();
    auto begin = reinterpret_cast<std::uintptr_t>(mapping_);
    if (is_huge) {
      begin = (begin + kHugePage - 1) & ~(kHugePage - 1);
      if (on_huge)
        on_huge_pages(reinterpret_cast<void*>(begin), mapped_ - (begin - reinterpret_cast<std::uintptr_t>(mapping_)));
    }
    data_ = reinterpret_cast<T*>(begin);
  }

  HugeArray(HugeArray&& other) noexcept { swap(other); }
  HugeArray& operator=(HugeArray&& other) noexcept {
    HugeArray(std::move(other)).swap(*this);
    return *this;
  }
  ~HugeArray() {
    if (mapping_) munmap(mapping_, mapped_);
  }

  void swap(HugeArray& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  // Has the system provide all memory at once, for an array that is about to be filled. Otherwise reading an empty slot
  // and then writing to it are two page faults, and the second interrupts all threads: half of counting's time with
  // two.
  void provide() {
#ifdef MADV_POPULATE_WRITE
    if (data_) madvise(data_, memory(), MADV_POPULATE_WRITE);
#endif
  }

  T& operator[](std::size_t index) { return data_[index]; }
  const T& operator[](std::size_t index) const { return data_[index]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  std::size_t size() const { return size_; }
  std::size_t memory() const { return size_ * sizeof(T); }

 private:
  void* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace webtext
