// Encoding one text, and many texts with threads that divide them and write their tokens to one array, in order.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <span>
#include <stdexcept>

#include "base/threads.hpp"
#include "encode/encoder.hpp"
#include "scan/safe_cut.hpp"

namespace webtext {

Bpe::~Bpe() {
  for (auto& slot : idle_) delete slot.load();
}

template <class Token>
std::size_t Bpe::encode(std::string_view text, Token* out) const {
  Token* end = out;
  with_encoder<Token>([&](auto& encoder) { end = encoder.encode(begin_of(text), end_of(text), out); });
  return static_cast<std::size_t>(end - out);
}

std::size_t Bpe::count(std::string_view text) const {
  std::size_t n_tokens = 0;
  with_encoder<std::uint32_t>([&](auto& encoder) {
    std::vector<std::uint32_t> tokens;
    std::uint32_t ends[encoder.kWindow];
    for (const Byte* begin = begin_of(text); begin < end_of(text);) {
      const std::size_t n_pieces = scanner_.cut(begin, end_of(text), ends, encoder.kWindow);
      const std::uint32_t n_bytes = ends[n_pieces - 1];
      if (tokens.size() < n_bytes + kSlack) tokens.resize(n_bytes + kSlack);
      const auto* end = encoder.encode_window(begin, end_of(text), ends, n_pieces, tokens.data());
      n_tokens += static_cast<std::size_t>(end - tokens.data());
      begin += n_bytes;
    }
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

constexpr std::ptrdiff_t kJobBytes = 1 << 18;

// A text or a part of it, for one thread to encode.
struct Share {
  const Byte *begin, *end;
  std::size_t text;
  bool ends_text;
};

// Shares in the order of the texts (long texts are cut where every pattern cuts), grouped into jobs of about kJobBytes.
struct Jobs {
  Jobs(const std::vector<std::string_view>& texts, const Scanner& scanner) {
    std::ptrdiff_t n_bytes = kJobBytes;
    for (std::size_t text = 0; text < texts.size(); ++text) {
      const Byte *begin = begin_of(texts[text]), *end = end_of(texts[text]);
      do {
        const Byte* until = share_end(scanner.classes(), begin, end, kJobBytes);
        if (n_bytes >= kJobBytes) {
          firsts.push_back(shares.size());
          n_bytes = 0;
        }
        shares.push_back({begin, until, text, until == end});
        n_bytes += until - begin;
        begin = until;
      } while (begin < end);
    }
    firsts.push_back(shares.size());
  }

  std::size_t size() const { return firsts.size() - 1; }
  std::span<const Share> operator[](std::size_t job) const {
    return std::span(shares).subspan(firsts[job], firsts[job + 1] - firsts[job]);
  }

  std::vector<Share> shares;
  std::vector<std::size_t> firsts;
};

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
  offsets[0] = 0;
  if (n_threads <= 1) {
    with_encoder<Token>([&](auto& encoder) {
      if (!may_change) {
        encoder.encode_all(
            texts.size(), [&](std::size_t index) { return std::pair(begin_of(texts[index]), end_of(texts[index])); },
            out, [&](std::size_t index, const Token* end) { offsets[index + 1] = end - out; });
        return;
      }
      Token* room = out;
      for (std::size_t index = 0; index < texts.size(); ++index) {
        const Byte *begin = begin_of(texts[index]), *end = end_of(texts[index]);
        for (const Byte* until; begin < end; begin = until) {
          until = share_end(scanner_.classes(), begin, end, kJobBytes);
          room = encoder.encode_copy(begin, until, room);
        }
        offsets[index + 1] = room - out;
      }
    });
    return;
  }
  const Jobs jobs(texts, scanner_);
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
          const std::span<const Share> shares = jobs[done.job];
          Token* room = done.tokens.get();
          const auto ended = [&](std::size_t index, const Token* end) {
            if (shares[index].ends_text) offsets[shares[index].text + 1] = end - done.tokens.get();
          };
          for (std::size_t index = 0; may_change && index < shares.size(); ++index) {
            room = encoder.encode_copy(shares[index].begin, shares[index].end, room);
            ended(index, room);
          }
          if (!may_change) {
            room = encoder.encode_all(
                shares.size(), [&](std::size_t index) { return std::pair(shares[index].begin, shares[index].end); },
                room, ended);
          }
          done.n_tokens = static_cast<std::size_t>(room - done.tokens.get());
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
