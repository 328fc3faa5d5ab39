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

constexpr std::string_view kMagic = "webtext counts 1\n";
constexpr std::size_t kBuffer = std::size_t{1} << 17;
constexpr std::size_t kMostShared = 255;  // bounds the expansion of a small file
constexpr std::size_t kLongestName = std::size_t{1} << 16;
constexpr std::uint64_t kFnvPrime = 0x100000001B3u;

std::uint64_t fnv(std::uint64_t checksum, const char* bytes, std::size_t n_bytes) {
  for (std::size_t index = 0; index < n_bytes; ++index) {
    checksum = (checksum ^ static_cast<std::uint8_t>(bytes[index])) * kFnvPrime;
  }
  return checksum;
}

[[noreturn]] void fail_with_errno(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

}  // namespace

OpenFile::OpenFile(int handle, std::string name) : handle_(handle), name_(std::move(name)) {
  if (handle < 0) fail_with_errno(name_);
}

std::shared_ptr<OpenFile> OpenFile::reading(const std::string& path) {
  return std::shared_ptr<OpenFile>(new OpenFile(open(path.c_str(), O_RDONLY | O_CLOEXEC), path));
}

std::shared_ptr<OpenFile> OpenFile::writing(const std::string& path) {
  const int handle = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return std::shared_ptr<OpenFile>(new OpenFile(handle, path));
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

void CountTotals::add(std::size_t piece_bytes, std::int64_t count) {
  add_to(n_bytes, times(static_cast<std::int64_t>(piece_bytes), count));
  ++n_pieces;
}

CountWriter::CountWriter(std::shared_ptr<OpenFile> file, std::string_view pattern, std::string_view unicode_version)
    : NumberWriter(std::move(file)) {
  put(kMagic);
  for (const std::string_view name : {pattern, unicode_version}) {
    put_number(name.size());
    put(name);
  }
}

void CountWriter::add(std::string_view piece, std::int64_t count) {
  const std::size_t limit = std::min({kMostShared, last_.size(), piece.size()});
  const auto shared =
      static_cast<std::size_t>(std::mismatch(&piece[0], &piece[0] + limit, last_.data()).first - &piece[0]);
  put_number(shared);
  put_number(piece.size() - shared);
  put(piece.substr(shared));
  put_number(static_cast<std::uint64_t>(count));
  totals_.add(piece.size(), count);
  last_.assign(piece);
}

void CountWriter::finish() {
  put_number(0);
  put_number(0);
  put_fixed(totals_.n_pieces);
  put_fixed(static_cast<std::uint64_t>(totals_.n_bytes));
  flush();
  put_fixed(checksum_);
  flush();
}

void NumberWriter::put_number(std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) buffer_ += static_cast<char>(number | 0x80);
  buffer_ += static_cast<char>(number);
  if (buffer_.size() >= kBuffer) flush();
}

void NumberWriter::put_fixed(std::uint64_t number) {
  for (int shift = 0; shift < 64; shift += 8) buffer_ += static_cast<char>(number >> shift);
}

void NumberWriter::flush() {
  checksum_ = fnv(checksum_, buffer_.data(), buffer_.size());
  file_->write(place_, buffer_.data(), buffer_.size());
  place_ += buffer_.size();
  buffer_.clear();
}

CountReader::CountReader(std::shared_ptr<OpenFile> file) : NumberReader(std::move(file)) {
  std::string magic;
  const bool is_whole = fill() && buffer_.size() >= kMagic.size();
  if (!is_whole || buffer_.compare(0, kMagic.size(), kMagic) != 0) {
    throw CountFileError("'" + file_->name() + "' is not a file of piece counts of version 1");
  }
  at_ = kMagic.size();
  for (std::string* name : {&pattern_, &unicode_version_}) {
    const std::uint64_t n_bytes = get_number();
    if (n_bytes > kLongestName) fail("a name of " + std::to_string(n_bytes) + " bytes");
    get_text(*name, n_bytes);
  }
}

bool CountReader::next() {
  const std::uint64_t shared = get_number(), n_own = get_number();
  if (shared == 0 && n_own == 0) {
    const std::uint64_t n_pieces = get_fixed(), n_bytes = get_fixed();
    checksum_ = fnv(checksum_, buffer_.data() + hashed_, at_ - hashed_);
    hashed_ = at_;
    const std::uint64_t expected = checksum_;
    if (n_pieces != totals_.n_pieces || n_bytes != static_cast<std::uint64_t>(totals_.n_bytes)) {
      fail("totals that differ from the pieces");
    }
    if (get_fixed() != expected) fail("a wrong checksum");
    if (at_ < buffer_.size() || fill()) fail("bytes after its end");
    return false;
  }
  if (shared > std::min(kMostShared, piece_.size()) || n_own == 0) fail("a piece that does not follow the one before");
  get_text(own_, n_own);
  if (totals_.n_pieces && own_ <= std::string_view(piece_).substr(shared)) fail("pieces out of order");
  piece_.resize(shared);
  piece_ += own_;
  const std::uint64_t count = get_number();
  if (count == 0 || count > static_cast<std::uint64_t>(INT64_MAX)) fail("a count out of range");
  count_ = static_cast<std::int64_t>(count);
  totals_.add(piece_.size(), count_);
  return true;
}

void NumberReader::fail(const std::string& what) const {
  throw CountFileError("'" + file_->name() + "' is damaged: " + what + " at byte " +
                       std::to_string(place_ - buffer_.size() + at_));
}

bool NumberReader::fill() {
  checksum_ = fnv(checksum_, buffer_.data() + hashed_, buffer_.size() - hashed_);
  hashed_ = at_ = 0;
  buffer_.resize(kBuffer);
  buffer_.resize(file_->read(place_, buffer_.data(), kBuffer));
  place_ += buffer_.size();
  return !buffer_.empty();
}

std::uint8_t NumberReader::get_byte() {
  if (at_ == buffer_.size() && !fill()) fail("its end is missing");
  return static_cast<std::uint8_t>(buffer_[at_++]);
}

std::uint64_t NumberReader::get_number() {
  std::uint64_t number = 0;
  for (int shift = 0; shift < 63; shift += 7) {
    const std::uint8_t byte = get_byte();
    number |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return number;
  }
  fail("a number of more than 63 bits");
}

std::uint64_t NumberReader::get_fixed() {
  std::uint64_t number = 0;
  for (int shift = 0; shift < 64; shift += 8) number |= static_cast<std::uint64_t>(get_byte()) << shift;
  return number;
}

void NumberReader::get_text(std::string& into, std::uint64_t n_bytes) {
  into.clear();  // grows with the bytes in the file, not with the length that it states
  while (into.size() < n_bytes) {
    if (at_ == buffer_.size() && !fill()) fail("its end is missing");
    const std::size_t n = std::min<std::uint64_t>(n_bytes - into.size(), buffer_.size() - at_);
    into.append(buffer_, at_, n);
    at_ += n;
  }
}

void merge_counts(const std::vector<WeightedCounts>& files,
                  const std::function<void(std::string_view piece, std::int64_t count)>& use) {
  std::vector<CountReader> readers;
  std::vector<std::size_t> heap;  // of reader indices, with the smallest piece on top
  const auto is_later = [&](std::size_t left, std::size_t right) {
    return readers[left].piece() > readers[right].piece();
  };
  readers.reserve(files.size());
  for (const WeightedCounts& counts : files) {
    readers.emplace_back(counts.file);
    if (readers.back().next()) heap.push_back(readers.size() - 1);
  }
  std::make_heap(heap.begin(), heap.end(), is_later);
  CountTotals totals;
  std::string piece;
  while (!heap.empty()) {
    piece.assign(readers[heap.front()].piece());
    std::int64_t sum = 0;
    while (!heap.empty() && readers[heap.front()].piece() == piece) {
      std::pop_heap(heap.begin(), heap.end(), is_later);
      CountReader& reader = readers[heap.back()];
      add_to(sum, times(reader.count(), files[heap.back()].weight));
      if (reader.next()) {
        std::push_heap(heap.begin(), heap.end(), is_later);
      } else {
        heap.pop_back();
      }
    }
    totals.add(piece.size(), sum);
    use(piece, sum);
  }
}

}  // namespace webtext
