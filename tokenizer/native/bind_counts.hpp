// The Python object for counts; for the bindings only.
#pragma once

#include <nanobind/nanobind.h>

#include <mutex>
#include <string>
#include <utility>

#include "piece_counts.hpp"

namespace webtext {

// Adds the class PieceCounts to the module.
void bind_counts(nanobind::module_& m);

// Counts with a lock, so that Python threads can share them without the GIL.
class LockedCounts {
 public:
  LockedCounts(std::string pattern, std::string unicode_version, std::size_t max_memory, std::string folder)
      : counts_(std::move(pattern), std::move(unicode_version), max_memory, std::move(folder)) {}
  LockedCounts(const LockedCounts&) = delete;

  // Returns use(counts, keep_going), called without the GIL and by one thread at a time. `keep_going` returns false
  // after a signal (Ctrl-C); the exception of its handler is then raised here.
  template <class Use>
  auto with(const Use& use) {
    bool interrupted = false;
    const auto keep_going = [&] {
      nanobind::gil_scoped_acquire acquire;
      return !(interrupted = interrupted || PyErr_CheckSignals() != 0);
    };
    auto result = [&] {
      nanobind::gil_scoped_release release;
      const std::lock_guard lock(mutex_);
      return use(counts_, keep_going);
    }();
    if (interrupted) throw nanobind::python_error();
    return result;
  }

 private:
  PieceCounts counts_;
  std::mutex mutex_;
};

}  // namespace webtext
