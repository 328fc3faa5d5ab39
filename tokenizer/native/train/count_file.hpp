// Sorted counts of pieces that memory has no room for, in files that disappear with the process.
//
//   for each distinct piece, in byte order: the length of the prefix shared with the previous piece, the number of
//     remaining bytes, these bytes, and the count (1 or more)
//   0, 0: end of the pieces
//
// Numbers are LEB128: seven bits per byte, low bits first, the eighth bit set if more follow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace webtext {

// An open file, closed with its last owner.
class OpenFile {
 public:
  // Creates a file without a name in the folder; it disappears with the process, however that ends.
  static std::shared_ptr<OpenFile> temporary(const std::string& folder);
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  // Both take an absolute position and keep none, so a forked process may use the file, too. Throw std::system_error.
  std::size_t read(std::uint64_t place, char* into, std::size_t n_bytes) const;  // fewer only at the end of the file
  void write(std::uint64_t place, const char* bytes, std::size_t n_bytes) const;

 private:
  OpenFile(int handle, std::string name);
  int handle_;
  std::string name_;
};

// Writes bytes and LEB128 numbers to a file.
class NumberWriter {
 public:
  explicit NumberWriter(std::shared_ptr<OpenFile> file) : file_(std::move(file)) {}
  void put(std::string_view bytes) { buffer_ += bytes; }
  void put_number(std::uint64_t number);
  void flush();

 private:
  std::shared_ptr<OpenFile> file_;
  std::string buffer_;
  std::uint64_t place_ = 0;  // of what is flushed
};

class CountWriter : NumberWriter {
 public:
  using NumberWriter::NumberWriter;
  void add(std::string_view piece, std::int64_t count);  // in order
  void finish();

 private:
  std::string last_;
};

// Reads what a NumberWriter wrote. Throws std::system_error where the file ends too early.
class NumberReader {
 public:
  explicit NumberReader(std::shared_ptr<OpenFile> file) : file_(std::move(file)) {}
  std::uint64_t get_number();

 protected:
  void get_text(std::string& into, std::uint64_t n_bytes);

 private:
  void fill();

  std::shared_ptr<OpenFile> file_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::uint64_t place_ = 0;  // of what is read
};

class CountReader : NumberReader {
 public:
  using NumberReader::NumberReader;

  // Reads the next piece; returns false at the end. Takes only the memory of the longest piece and a buffer.
  bool next();
  std::string_view piece() const { return piece_; }
  std::int64_t count() const { return count_; }

 private:
  std::string piece_, own_;
  std::int64_t count_ = 0;
};

// Calls use(piece, count) for each distinct piece of all files, in order, with the sum of its counts: a k-way merge
// that keeps one piece of each file in memory.
void merge_counts(const std::vector<std::shared_ptr<OpenFile>>& files,
                  const std::function<void(std::string_view piece, std::int64_t count)>& use);

// Returns `count` times `weight`, and adds a count to a sum; both throw std::overflow_error above 63 bits.
std::int64_t times(std::int64_t count, std::int64_t weight);
void add_to(std::int64_t& sum, std::int64_t count);

}  // namespace webtext
