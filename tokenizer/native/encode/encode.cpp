// Encoding one text, and many texts with threads that divide them and write their tokens to one array, in order.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "base/threads.hpp"
#include "encode/encoder.hpp"
#include "scan/shares.hpp"

namespace webtext {

Bpe::~Bpe() {
  for (auto& slot : idle_) delete slot.load();
}

template <class Token>
std::size_t Bpe::encode(std::string_view text, Token* out) const {
  const Share share{begin_of(text), end_of(text), 0, true};
  std::size_t n_tokens = 0;
  with_encoder<Token>([&](auto& encoder) {
    encoder.encode_all({&share, 1}, false, out, [&](const Share&, Token* end) { n_tokens = end - out; });
  });
  return n_tokens;
}

std::size_t Bpe::encode_pieces(std::string_view text, const std::int64_t* piece_ends, std::size_t n_pieces,
                               std::uint32_t* out) const {
  std::uint32_t* room = out;
  with_encoder<std::uint32_t>([&](auto& encoder) {
    const Byte *begin = begin_of(text), *end = begin + (n_pieces ? piece_ends[n_pieces - 1] : 0);
    std::int64_t start = 0;
    for (std::size_t index = 0; index < n_pieces;) {
      std::uint32_t ends[encoder.kWindow];
      std::size_t n_ends = 0;
      for (; index < n_pieces && n_ends < encoder.kWindow; ++index) {
        if (piece_ends[index] - start > kFarthestEnd) break;
        ends[n_ends++] = static_cast<std::uint32_t>(piece_ends[index] - start);
      }
      if (n_ends == 0) throw std::length_error("a piece of 4 GiB or more");
      room = encoder.encode_window(begin + start, end, ends, n_ends, room);
      start += ends[n_ends - 1];
    }
  });
  return static_cast<std::size_t>(room - out);
}

template std::size_t Bpe::encode(std::string_view, std::uint16_t*) const;
template std::size_t Bpe::encode(std::string_view, std::uint32_t*) const;

namespace {

// Assigns output positions in the order of jobs: a finished job waits for the jobs before it.
class Turns {
 public:
  // Sets `before` to the number of tokens before a job's. Returns false if another thread failed, or if it isn't the
  // job's turn and `wait` is false.
  bool take(std::size_t job, std::size_t n_tokens, bool wait, std::size_t& before) {
    std::unique_lock lock(mutex_);
    if (wait) turn_.wait(lock, [&] { return job_ == job || failed_; });
    if (job_ != job || failed_) return false;
    before = n_tokens_;
    n_tokens_ += n_tokens;
    ++job_;
    lock.unlock();
    turn_.notify_all();
    return true;
  }

  void fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  std::size_t job_ = 0, n_tokens_ = 0;
  bool failed_ = false;
};

}  // namespace

template <class Token>
void Bpe::encode_many(const std::vector<std::string_view>& texts, unsigned n_threads, Token* out, std::int64_t* offsets,
                      bool may_change) const {
  const Jobs jobs(texts, scanner_.classes());
  offsets[0] = 0;
  if (n_threads <= 1) {
    with_encoder<Token>([&](auto& encoder) {
      encoder.encode_all(jobs.shares(), may_change, out, [&](const Share& share, const Token* end) {
        if (share.ends_text) offsets[share.text + 1] = end - out;
      });
    });
    return;
  }
  std::atomic<std::size_t> next{0};
  Turns turns;
  // A job that is finished before its turn waits in one buffer while the next one is encoded into the other.
  struct Done {
    std::unique_ptr<Token[]> tokens;
    std::size_t n_room = 0, n_tokens = 0, job = 0;
    bool is_waiting = false;
  };
  const auto deliver = [&](Done& done, bool wait) {
    std::size_t before = 0;
    if (!turns.take(done.job, done.n_tokens, wait, before)) return false;
    std::copy_n(done.tokens.get(), done.n_tokens, out + before);
    for (const Share& share : jobs[done.job]) {
      if (share.ends_text) offsets[share.text + 1] += static_cast<std::int64_t>(before);
    }
    done.is_waiting = false;
    return true;
  };
  const auto work = [&] {
    with_encoder<Token>([&](auto& encoder) {
      Done both[2];
      for (std::size_t turn = 0;; turn ^= 1) {
        Done &done = both[turn], &earlier = both[turn ^ 1];
        done.job = next++;
        const bool is_job = done.job < jobs.size();
        if (is_job) {
          std::size_t n_bytes = 0;
          for (const Share& share : jobs[done.job]) n_bytes += static_cast<std::size_t>(share.end - share.begin);
          if (done.n_room < n_bytes + kSlack) {
            done.n_room = n_bytes + kSlack;
            done.tokens.reset(new Token[done.n_room]);
          }
          Token* const room = done.tokens.get();
          const Token* end =
              encoder.encode_all(jobs[done.job], may_change, room, [&](const Share& share, const Token* end) {
                if (share.ends_text) offsets[share.text + 1] = end - room;
              });
          done.n_tokens = static_cast<std::size_t>(end - room);
        }
        if (earlier.is_waiting && !deliver(earlier, true)) return;  // another thread failed
        if (!is_job) return;
        done.is_waiting = !deliver(done, false);
      }
    });
  };
  in_threads(std::max<std::size_t>(1, std::min<std::size_t>(n_threads, jobs.size())), [&](std::size_t) {
    try {
      work();
    } catch (...) {
      turns.fail();
      throw;
    }
  });
}

template void Bpe::encode_many(const std::vector<std::string_view>&, unsigned, std::uint16_t*, std::int64_t*,
                               bool) const;
template void Bpe::encode_many(const std::vector<std::string_view>&, unsigned, std::uint32_t*, std::int64_t*,
                               bool) const;

}  // namespace webtext
