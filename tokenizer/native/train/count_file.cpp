#include "train/count_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace webtext {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 17;

[[noreturn]] void fail_with_errno(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

}  // namespace

OpenFile::OpenFile(int handle, std::string name) : handle_(handle), name_(std::move(name)) {
  if (handle < 0) fail_with_errno(name_);
}

std::shared_ptr<OpenFile> OpenFile::temporary(const std::string& folder) {
  std::string path = folder + "/webtext-counts-XXXXXX";
  const int handle = mkstemp(path.data());
  if (handle < 0) fail_with_errno(folder);
  unlink(path.c_str());
  fcntl(handle, F_SETFD, FD_CLOEXEC);
  return std::shared_ptr<OpenFile>(new OpenFile(handle, path));
}

OpenFile::~OpenFile() { close(handle_); }

std::size_t OpenFile::read(std::uint64_t place, char* into, std::size_t n_bytes) const {
  std::size_t done = 0;
  while (done < n_bytes) {
    const ssize_t n = pread(handle_, into + done, n_bytes - done, static_cast<off_t>(place + done));
    if (n == 0) break;
    if (n > 0) done += static_cast<std::size_t>(n);
    if (n < 0 && errno != EINTR) fail_with_errno(name_);
  }
  return done;
}

void OpenFile::write(std::uint64_t place, const char* bytes, std::size_t n_bytes) const {
  for (std::size_t done = 0; done < n_bytes;) {
    const ssize_t n = pwrite(handle_, bytes + done, n_bytes - done, static_cast<off_t>(place + done));
    if (n >= 0) done += static_cast<std::size_t>(n);
    if (n < 0 && errno != EINTR) fail_with_errno(name_);
  }
}

std::int64_t times(std::int64_t count, std::int64_t weight) {
  std::int64_t product;
  if (__builtin_mul_overflow(count, weight, &product)) throw std::overflow_error("counts of more than 63 bits");
  return product;
}

void add_to(std::int64_t& sum, std::int64_t count) {
  if (__builtin_add_overflow(sum, count, &sum)) throw std::overflow_error("counts of more than 63 bits");
}

void CountWriter::add(std::string_view piece, std::int64_t count) {
  const std::size_t limit = std::min(last_.size(), piece.size());
  const auto shared =
      static_cast<std::size_t>(std::mismatch(&piece[0], &piece[0] + limit, last_.data()).first - &piece[0]);
  put_number(shared);
  put_number(piece.size() - shared);
  put(piece.substr(shared));
  put_number(static_cast<std::uint64_t>(count));
  last_.assign(piece);
}

void CountWriter::finish() {
  put_number(0);
  put_number(0);
  flush();
}

void NumberWriter::put_number(std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) buffer_ += static_cast<char>(number | 0x80);
  buffer_ += static_cast<char>(number);
  if (buffer_.size() >= kBuffer) flush();
}

void NumberWriter::flush() {
  file_->write(place_, buffer_.data(), buffer_.size());
  place_ += buffer_.size();
  buffer_.clear();
}

bool CountReader::next() {
  const std::uint64_t shared = get_number(), n_own = get_number();
  if (n_own == 0) return false;
  get_text(own_, n_own);
  piece_.resize(shared);
  piece_ += own_;
  count_ = static_cast<std::int64_t>(get_number());
  return true;
}

void NumberReader::fill() {
  at_ = 0;
  buffer_.resize(kBuffer);
  buffer_.resize(file_->read(place_, buffer_.data(), kBuffer));
  if (buffer_.empty()) throw std::system_error(EIO, std::generic_category(), "a temporary file is cut short");
  place_ += buffer_.size();
}

std::uint64_t NumberReader::get_number() {
  std::uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    if (at_ == buffer_.size()) fill();
    const auto byte = static_cast<std::uint8_t>(buffer_[at_++]);
    number |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return number;
  }
}

void NumberReader::get_text(std::string& into, std::uint64_t n_bytes) {
  into.clear();
  while (into.size() < n_bytes) {
    if (at_ == buffer_.size()) fill();
    const std::size_t n = std::min<std::uint64_t>(n_bytes - into.size(), buffer_.size() - at_);
    into.append(buffer_, at_, n);
    at_ += n;
  }
}

void merge_counts(const std::vector<std::shared_ptr<OpenFile>>& files,
                  const std::function<void(std::string_view piece, std::int64_t count)>& use) {
  std::vector<CountReader> readers;
  std::vector<std::size_t> heap;  // of reader indices, with the smallest piece on top
  const auto is_later = [&](std::size_t left, std::size_t right) {
    return readers[left].piece() > readers[right].piece();
  };
  readers.reserve(files.size());
  for (const std::shared_ptr<OpenFile>& file : files) {
    readers.emplace_back(file);
    if (readers.back().next()) heap.push_back(readers.size() - 1);
  }
  std::make_heap(heap.begin(), heap.end(), is_later);
  std::string piece;
  while (!heap.empty()) {
    piece.assign(readers[heap.front()].piece());
    std::int64_t sum = 0;
    while (!heap.empty() && readers[heap.front()].piece() == piece) {
      std::pop_heap(heap.begin(), heap.end(), is_later);
      CountReader& reader = readers[heap.back()];
      add_to(sum, reader.count());
      if (reader.next()) {
        std::push_heap(heap.begin(), heap.end(), is_later);
      } else {
        heap.pop_back();
      }
    }
    use(piece, sum);
  }
}

}  // namespace webtext
