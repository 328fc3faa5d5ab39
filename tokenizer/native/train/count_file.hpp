// Sorted counts of pieces on disk: the format of files that machines exchange, and of counts spilled from memory.
//
//   "webtext counts 1\n"
//   pattern and Unicode version: each as its length, then its bytes
//   for each distinct piece, in byte order: the length of the prefix shared with the previous piece (at most 255), the
//     number of remaining bytes, these bytes, and the count (1 or more)
//   0, 0: end of the pieces
//   number of pieces, bytes of text (sum of lengths times counts), 64-bit FNV-1a of everything before: 8 bytes each,
//     little-endian; end of the file
//
// Numbers without a stated size are LEB128: seven bits per byte, low bits first, the eighth bit set if more follow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace webtext {

// A file that breaks the format; the message says where and how.
struct CountFileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An open file, closed with its last owner.
class OpenFile {
 public:
  static std::shared_ptr<OpenFile> reading(const std::string& path);
  static std::shared_ptr<OpenFile> writing(const std::string& path);
  // Creates a file without a name in the folder; it disappears with the process, however that ends.
  static std::shared_ptr<OpenFile> temporary(const std::string& folder);
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  // Both take an absolute position and keep none, so a forked process may use the file, too. Throw std::system_error.
  std::size_t read(std::uint64_t place, char* into, std::size_t n_bytes) const;  // fewer only at the end of the file
  void write(std::uint64_t place, const char* bytes, std::size_t n_bytes) const;
  const std::string& name() const { return name_; }

 private:
  OpenFile(int handle, std::string name);
  int handle_;
  std::string name_;
};

struct CountTotals {
  std::uint64_t n_pieces = 0;
  std::int64_t n_bytes = 0;  // of text: lengths times counts

  // Throws std::overflow_error if the bytes exceed 63 bits. This guarantees that no sum of counts overflows.
  void add(std::size_t piece_bytes, std::int64_t count);
};

inline constexpr std::uint64_t kFnvBasis = 0xCBF29CE484222325u;

// Writes bytes and LEB128 numbers to a file.
class NumberWriter {
 public:
  explicit NumberWriter(std::shared_ptr<OpenFile> file) : file_(std::move(file)) {}
  void put(std::string_view bytes) { buffer_ += bytes; }
  void put_number(std::uint64_t number);
  void flush();

 protected:
  void put_fixed(std::uint64_t number);

  std::shared_ptr<OpenFile> file_;
  std::string buffer_;
  std::uint64_t place_ = 0, checksum_ = kFnvBasis;  // of what is flushed
};

class CountWriter : NumberWriter {
 public:
  CountWriter(std::shared_ptr<OpenFile> file, std::string_view pattern, std::string_view unicode_version);
  void add(std::string_view piece, std::int64_t count);  // in order
  void finish();

 private:
  std::string last_;
  CountTotals totals_;
};

// Reads what a NumberWriter wrote. Throws CountFileError where the file ends too early.
class NumberReader {
 public:
  explicit NumberReader(std::shared_ptr<OpenFile> file) : file_(std::move(file)) {}
  std::uint64_t get_number();

 protected:
  [[noreturn]] void fail(const std::string& what) const;
  std::uint8_t get_byte();
  std::uint64_t get_fixed();
  void get_text(std::string& into, std::uint64_t n_bytes);
  bool fill();

  std::shared_ptr<OpenFile> file_;
  std::string buffer_;
  std::size_t at_ = 0, hashed_ = 0;
  std::uint64_t place_ = 0, checksum_ = kFnvBasis;  // of what is read
};

class CountReader : NumberReader {
 public:
  explicit CountReader(std::shared_ptr<OpenFile> file);
  const std::string& pattern() const { return pattern_; }
  const std::string& unicode_version() const { return unicode_version_; }

  // Reads the next piece; returns false at the end of the file if its checksum is right. Throws CountFileError. Takes
  // only the memory of the longest piece and a buffer.
  bool next();
  std::string_view piece() const { return piece_; }
  std::int64_t count() const { return count_; }

 private:
  std::string pattern_, unicode_version_, piece_, own_;
  std::int64_t count_ = 0;
  CountTotals totals_;
};

// Sorted counts, each to be multiplied by a weight.
struct WeightedCounts {
  std::shared_ptr<OpenFile> file;
  std::int64_t weight = 1;
};

// Calls use(piece, count) for each distinct piece of all files, in order, with the sum of its counts: a k-way merge
// that keeps one piece of each file in memory. Throws CountFileError, and std::overflow_error if a sum exceeds 63 bits.
void merge_counts(const std::vector<WeightedCounts>& files,
                  const std::function<void(std::string_view piece, std::int64_t count)>& use);

// Returns `count` times `weight`, and adds a count to a sum; both throw std::overflow_error above 63 bits.
std::int64_t times(std::int64_t count, std::int64_t weight);
void add_to(std::int64_t& sum, std::int64_t count);

}  // namespace webtext
