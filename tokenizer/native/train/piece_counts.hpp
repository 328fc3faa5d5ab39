// Counting distinct pieces: the first half of training.
//
// Each thread counts into its own table. A table that reaches its share of memory is sorted and spilled to a nameless
// file; the files are merged when the counts are read. The sums are exact, whatever was spilled and when, so counts and
// merges depend only on the texts.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "scan/shares.hpp"
#include "train/count_file.hpp"
#include "train/piece_table.hpp"

namespace webtext {

class PieceCounts {
 public:
  static constexpr std::size_t kDefaultMemory = std::size_t{1} << 30;

  // All tables together take at most `max_memory` bytes, except for a piece longer than that. Spills go to `folder`.
  PieceCounts(std::string pattern, std::string unicode_version, std::size_t max_memory, std::string folder);

  std::size_t max_memory() const { return max_memory_; }
  const std::string& folder() const { return folder_; }

  // Adds a piece. Every `add` throws std::overflow_error if the bytes of all texts, times their weights, exceed 63
  // bits; this guarantees that nothing else overflows.
  void add(std::string_view piece, std::int64_t count);

  // Cuts texts and counts their pieces, `weight` times each, with threads that also divide long texts. Calls `check`
  // regularly on the calling thread. After an exception, of `check` or any other, the counts are incomplete.
  void add_texts(const std::vector<std::string_view>& texts, std::int64_t weight, std::size_t n_threads,
                 const std::function<void()>& check);

  // Counts the part of a text that doesn't depend on what follows; returns its length in bytes, which may be 0.
  std::size_t add_start_of(std::string_view text, std::int64_t weight, std::size_t n_threads,
                           const std::function<void()>& check);

  // Merges the counts into one table, or into one file if any were spilled.
  void settle();

  // The number of distinct pieces. It and `each` need settled counts.
  std::size_t size() const;

  // Calls use(piece, count) for every distinct piece: in byte order for a file, in any order for a table.
  template <class Use>
  void each(const Use& use) const {
    for (const PieceTable& table : tables_) table.each(use);
    for (const std::shared_ptr<OpenFile>& run : runs_) {
      CountReader reader(run);
      while (reader.next()) use(reader.piece(), reader.count());
    }
  }

  // Settles the counts. If the tables take more than `n_bytes`, spills them to a file and frees their memory.
  void shrink(std::size_t n_bytes);

 private:
  static constexpr std::size_t kMostRuns = 64;  // files merged at once, with one buffer each

  void add_share(const Scanner& scanner, const Share& share, std::int64_t weight, PieceTable& table);
  void count_bytes(std::uint64_t n_bytes, std::int64_t weight);
  void spill(PieceTable& table);
  void merge_runs();
  std::size_t memory() const;

  std::string pattern_, unicode_version_;
  std::size_t max_memory_;
  std::string folder_;
  std::vector<PieceTable> tables_;               // one per thread
  std::vector<std::shared_ptr<OpenFile>> runs_;  // spilled
  std::int64_t n_bytes_ = 0;                     // of the texts, times their weights
  std::unique_ptr<std::mutex> runs_mutex_ = std::make_unique<std::mutex>();
};

}  // namespace webtext
