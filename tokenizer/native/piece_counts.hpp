// How often each distinct piece occurs: the first half of training.
//
// Every thread counts into a table of its own. When the tables reach their share of memory they are sorted and spilled
// to files without a name, which are merged when the counts are read: sums are exact whatever was spilled when, so
// counts, and with them merges, depend on the texts alone.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "count_file.hpp"
#include "piece_table.hpp"

namespace webtext {

// A text, or a part of one that can be cut by itself.
struct TextShare {
  const Byte* begin;
  const Byte* end;
};

class PieceCounts {
 public:
  static constexpr std::size_t kDefaultMemory = std::size_t{512} << 20;

  // Tables take at most `max_memory` bytes together, longer pieces than that aside; spilled files lie in `folder`.
  explicit PieceCounts(std::string pattern = "gpt2", std::string unicode_version = kUnicodeVersion,
                       std::size_t max_memory = kDefaultMemory, std::string folder = "/tmp");

  const std::string& pattern() const { return pattern_; }
  const std::string& unicode_version() const { return unicode_version_; }

  // Adds a piece that was cut elsewhere. Every `add` throws std::overflow_error when the bytes of all text, times its
  // weight, do not fit 63 bits, and nothing else can then overflow.
  void add(const Byte* bytes, std::size_t n_bytes, std::int64_t count);

  // Cuts texts and counts their pieces, `weight` times each, by so many threads; long texts are shared out. Asks
  // `keep_going` now and then on the calling thread; when that says no, the counts are of no use any more.
  void add_texts(const std::vector<TextShare>& texts, std::int64_t weight, std::size_t n_threads,
                 const std::function<bool()>& keep_going);

  // Counts the part of a text that does not depend on what follows, and returns its bytes: 0 when there is none.
  std::size_t add_start_of(TextShare text, std::int64_t weight, std::size_t n_threads,
                           const std::function<bool()>& keep_going);

  // Takes in a file of counts, times `weight`. Nothing of it but its names is read before the counts are.
  void add_file(std::shared_ptr<OpenFile> file, std::int64_t weight);

  // Brings the counts into one table, or one file where any were spilled or added as files. Throws CountFileError.
  void settle();

  // Distinct pieces; of settled counts only, as is `each`.
  std::size_t size() const;

  // Calls use(bytes, n_bytes, count) for every distinct piece: a table's in no particular order, a file's in theirs.
  template <class Use>
  void each(const Use& use) const {
    for (const PieceTable& table : tables_) table.each(use);
    for (const WeightedCounts& run : runs_) {
      CountReader reader(run.file);
      while (reader.next()) {
        use(reinterpret_cast<const Byte*>(reader.piece().data()), reader.piece().size(), reader.count());
      }
    }
  }

  // Writes the counts as a file (see count_file.hpp).
  CountTotals save(const std::shared_ptr<OpenFile>& file);

  // Settles the counts, in a file when the tables hold more than `n_bytes` of memory, which is given back.
  void shrink(std::size_t n_bytes);

 private:
  static constexpr std::size_t kMostRuns = 64;  // files that are merged at once, a buffer each

  void add_share(const Scanner& scanner, TextShare text, std::int64_t weight, PieceTable& table, std::size_t budget);
  void count_bytes(std::uint64_t n_bytes, std::int64_t weight);
  void spill(PieceTable& table);
  void merge_runs();
  std::size_t memory() const;
  CountTotals merge_into(const std::shared_ptr<OpenFile>& file) const;

  std::string pattern_, unicode_version_;
  std::size_t max_memory_;
  std::string folder_;
  std::vector<PieceTable> tables_;  // one for every thread
  std::vector<WeightedCounts> runs_;
  std::size_t n_run_pieces_ = 0;  // of the one run of settled counts, else 0
  std::int64_t n_bytes_ = 0;      // of the texts, times their weights
  std::unique_ptr<std::mutex> runs_mutex_ = std::make_unique<std::mutex>();
};

}  // namespace webtext
