#include "train/piece_counts.hpp"

#include <atomic>

#include "base/threads.hpp"
#include "scan/shares.hpp"

namespace webtext {
namespace {

constexpr std::size_t kThreadBytes = 1 << 17;  // of text, for which another thread is worth starting
constexpr std::size_t kWindow = 1024;          // pieces cut at once

// Returns the length of a beginning whose pieces don't depend on what follows, and don't change if the text ends there:
// up to the last three pieces, and to one that doesn't end with white space (which the end of a text would join to a
// longer run).
std::size_t decided_size(const Scanner& scanner, std::string_view text) {
  std::size_t ends[4] = {}, end = 0;  // ends[0]: the fourth from the end
  scanner.each_piece(text, [&](std::string_view piece) {
    std::copy(ends + 1, ends + 4, ends);
    end += piece.size();
    const bool is_blank = character_before(scanner.classes(), begin_of(piece), end_of(piece)).kind == CharClass::kSpace;
    ends[3] = is_blank ? ends[2] : end;
  });
  return ends[0];
}

}  // namespace

PieceCounts::PieceCounts(std::string pattern, std::string unicode_version, std::size_t max_memory, std::string folder)
    : pattern_(std::move(pattern)),
      unicode_version_(std::move(unicode_version)),
      max_memory_(max_memory),
      folder_(std::move(folder)),
      tables_(1) {}

void PieceCounts::add(std::string_view piece, std::int64_t count) {
  if (count <= 0 || piece.empty()) return;
  count_bytes(piece.size(), count);
  if (!tables_[0].reserve(1, piece.size(), max_memory_ / tables_.size())) spill(tables_[0]);
  tables_[0].add(piece, count);
}

void PieceCounts::add_texts(const std::vector<std::string_view>& texts, std::int64_t weight, std::size_t n_threads,
                            const std::function<void()>& check) {
  const Scanner scanner(pattern_, unicode_version_);
  const Jobs jobs(texts, scanner.classes());
  std::uint64_t n_bytes = 0;
  for (const std::string_view text : texts) n_bytes += text.size();
  count_bytes(n_bytes, weight);
  n_threads = std::clamp<std::size_t>(n_bytes / kThreadBytes, 1, std::max<std::size_t>(n_threads, 1));
  if (tables_.size() < n_threads) tables_.resize(n_threads);
  std::atomic<std::size_t> next = 0;
  in_threads(n_threads, [&](std::size_t thread) {
    try {
      for (std::size_t job; (job = next++) < jobs.size();) {
        for (const Share& share : jobs[job]) add_share(scanner, share, weight, tables_[thread]);
        if (thread == 0) check();
      }
    } catch (...) {
      next = jobs.size();  // ends the other threads
      throw;
    }
  });
}

void PieceCounts::add_share(const Scanner& scanner, const Share& share, std::int64_t weight, PieceTable& table) {
  const std::size_t budget = max_memory_ / tables_.size();
  std::uint32_t ends[kWindow];
  for (const Byte* at = share.begin; at < share.end;) {
    const std::size_t n_pieces = scanner.cut(at, share.end, ends, kWindow);
    const std::uint32_t n_bytes = ends[n_pieces - 1];
    if (!table.reserve(n_pieces, n_bytes, budget)) {
      spill(table);
      table.reserve(n_pieces, n_bytes, ~std::size_t{0});
    }
    table.add_window(at, share.end, ends, n_pieces, weight);
    at += n_bytes;
  }
}

std::size_t PieceCounts::add_start_of(std::string_view text, std::int64_t weight, std::size_t n_threads,
                                      const std::function<void()>& check) {
  const Scanner scanner(pattern_, unicode_version_);
  const Byte* begin = begin_of(text);
  auto n_bytes = static_cast<std::size_t>(last_safe_cut(scanner.classes(), begin, begin, end_of(text)) - begin);
  if (n_bytes == 0) n_bytes = decided_size(scanner, text);
  add_texts({text.substr(0, n_bytes)}, weight, n_threads, check);
  return n_bytes;
}

void PieceCounts::settle() {
  if (runs_.empty() && (tables_.size() == 1 || memory() <= max_memory_ / 2)) {
    for (std::size_t index = 1; index < tables_.size(); ++index) {
      tables_[index].each([&](std::string_view piece, std::int64_t count) { tables_[0].add(piece, count); });
      tables_[index].release();
    }
    tables_.resize(1);
    return;
  }
  for (PieceTable& table : tables_) {
    spill(table);
    table.release();
  }
  tables_.resize(1);
  if (runs_.size() > 1) merge_runs();
}

std::size_t PieceCounts::memory() const {
  std::size_t n_bytes = 0;
  for (const PieceTable& table : tables_) n_bytes += table.memory();
  return n_bytes;
}

std::size_t PieceCounts::size() const {
  std::size_t n_pieces = 0;
  each([&](std::string_view, std::int64_t) { ++n_pieces; });
  return n_pieces;
}

void PieceCounts::shrink(std::size_t n_bytes) {
  if (memory() > n_bytes) {
    for (PieceTable& table : tables_) spill(table);
  }
  settle();
}

void PieceCounts::count_bytes(std::uint64_t n_bytes, std::int64_t weight) {
  add_to(n_bytes_, times(static_cast<std::int64_t>(n_bytes), weight));
}

void PieceCounts::spill(PieceTable& table) {
  if (table.size() == 0) return;
  const auto file = OpenFile::temporary(folder_);
  CountWriter writer(file);
  table.drain_sorted([&](std::string_view piece, std::int64_t count) { writer.add(piece, count); });
  writer.finish();
  const std::lock_guard lock(*runs_mutex_);
  runs_.push_back(file);
  if (runs_.size() > kMostRuns) merge_runs();
}

void PieceCounts::merge_runs() {
  const auto file = OpenFile::temporary(folder_);
  CountWriter writer(file);
  merge_counts(runs_, [&](std::string_view piece, std::int64_t count) { writer.add(piece, count); });
  writer.finish();
  runs_ = {file};
}

}  // namespace webtext
