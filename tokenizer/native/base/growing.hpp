// An array of trivially copyable values that grows by realloc. Most of training's memory is in such arrays: growing a
// large one remaps pages, while a std::vector would be copied and exist twice.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace webtext {

template <class Value>
class Growing {
  static_assert(std::is_trivially_copyable_v<Value>);

 public:
  Growing() = default;
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;
  Growing(Growing&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  ~Growing() { std::free(data_); }

  Value& operator[](std::size_t index) { return data_[index]; }
  const Value& operator[](std::size_t index) const { return data_[index]; }
  const Value* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t memory() const { return capacity_ * sizeof(Value); }

  void push_back(const Value& value) {
    if (size_ == capacity_) reserve(size_ + 1);
    data_[size_++] = value;
  }

  // New values are not initialised.
  void resize(std::size_t size) {
    if (size > capacity_) reserve(size);
    size_ = size;
  }

 private:
  static constexpr std::size_t kLeast = 1 << 10;

  void reserve(std::size_t size) {
    std::size_t capacity = capacity_ + capacity_ / 4;
    if (capacity < size) capacity = size;
    if (capacity < kLeast) capacity = kLeast;
    void* data = std::realloc(data_, capacity * sizeof(Value));
    if (!data) throw std::bad_alloc();
    data_ = static_cast<Value*>(data);
    capacity_ = capacity;
  }

  Value* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace webtext
