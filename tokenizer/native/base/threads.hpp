// Runs work in threads that live for one call only, so that a fork has nothing to inherit.
#pragma once

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace webtext {

// Calls work(0) ... work(n - 1), each on its own thread, the first on the calling thread. If no more threads can be
// started, the calling thread does the rest. After all have ended, the first exception is rethrown.
template <class Work>
void in_threads(std::size_t n, const Work& work) {
  std::exception_ptr first;
  std::mutex mutex;
  const auto guarded = [&](std::size_t index) {
    try {
      work(index);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  std::size_t started = 1;
  try {
    for (; started < n; ++started) threads.emplace_back(guarded, started);
  } catch (const std::system_error&) {
  }
  guarded(0);
  for (; started < n; ++started) guarded(started);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace webtext
