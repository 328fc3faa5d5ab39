// Counts of pieces on disk, sorted: a file that machines exchange, and what counting spills when memory is short.
//
//   "webtext counts 1\n"
//   pattern and Unicode version: each its length, then its bytes
//   for every piece, in the order of their bytes, none twice: how many of its first bytes (255 at most) it takes from
//     the piece before, how many of its own follow, these, then its count (1 or more)
//   0, 0: no more pieces
//   how many pieces there were, how many bytes of text (lengths times counts), the 64-bit FNV-1a of all before: 8 bytes
//     each, little-endian; here the file ends
//
// Numbers without a stated size are LEB128: seven bits a byte, the low ones first, the eighth bit set when more follow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace webtext {

// A file that breaks the format; the text says where and how.
struct CountFileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An open file; closed when the last owner goes.
class OpenFile {
 public:
  static std::shared_ptr<OpenFile> reading(const std::string& path);
  static std::shared_ptr<OpenFile> writing(const std::string& path);
  // A file in the folder that has no name, so that it is gone with the process, however that ends.
  static std::shared_ptr<OpenFile> temporary(const std::string& folder);
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  // Both work at a place and share none: a fork of the process may use the file too. They throw std::system_error.
  std::size_t read(std::uint64_t place, char* into, std::size_t n_bytes) const;  // fewer only at the end
  void write(std::uint64_t place, const char* bytes, std::size_t n_bytes) const;
  const std::string& name() const { return name_; }

 private:
  OpenFile(int handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  int handle_;
  std::string name_;
};

struct CountTotals {
  std::uint64_t n_pieces = 0;
  std::int64_t n_bytes = 0;  // of text: lengths times counts

  // Throws std::overflow_error when the bytes do not fit 64 bits: no count, nor any sum of counts, then overflows.
  void add(std::size_t piece_bytes, std::int64_t count);
};

class CountWriter {
 public:
  CountWriter(std::shared_ptr<OpenFile> file, std::string_view pattern, std::string_view unicode_version);
  void add(std::string_view piece, std::int64_t count);  // in order
  CountTotals finish();

 private:
  void put(std::string_view bytes);
  void put_number(std::uint64_t number);
  void put_fixed(std::uint64_t number);
  void flush();

  std::shared_ptr<OpenFile> file_;
  std::string buffer_, last_;
  std::uint64_t place_ = 0, checksum_;
  CountTotals totals_;
};

class CountReader {
 public:
  explicit CountReader(std::shared_ptr<OpenFile> file);
  const std::string& pattern() const { return pattern_; }
  const std::string& unicode_version() const { return unicode_version_; }

  // Goes on to the next piece, the first at first; false at the end, when the checksum was right. Throws
  // CountFileError. Takes no more memory than the longest piece and a buffer.
  bool next();
  std::string_view piece() const { return piece_; }
  std::int64_t count() const { return count_; }
  const CountTotals& totals() const { return totals_; }

 private:
  [[noreturn]] void fail(const std::string& what) const;
  std::uint8_t get_byte();
  std::uint64_t get_number();
  std::uint64_t get_fixed();
  void get_text(std::string& into, std::uint64_t n_bytes);
  bool fill();

  std::shared_ptr<OpenFile> file_;
  std::string buffer_;
  std::size_t at_ = 0, hashed_ = 0;
  std::uint64_t place_ = 0, checksum_;
  std::string pattern_, unicode_version_, piece_, own_;
  std::int64_t count_ = 0;
  CountTotals totals_;
};

// Sorted counts with the number that each count is taken times.
struct WeightedCounts {
  std::shared_ptr<OpenFile> file;
  std::int64_t weight = 1;
};

// Calls use(piece, count) for every distinct piece of all files, in order, with the sum of its counts: a k-way merge
// that holds one piece of each file. Throws CountFileError, and std::overflow_error when a sum does not fit 64 bits.
void merge_counts(const std::vector<WeightedCounts>& files,
                  const std::function<void(std::string_view piece, std::int64_t count)>& use);

// `count` times `weight`; throws std::overflow_error.
std::int64_t times(std::int64_t count, std::int64_t weight);

}  // namespace webtext
