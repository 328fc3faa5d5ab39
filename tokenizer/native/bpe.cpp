#include "bpe.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "threads.hpp"

namespace webtext {
namespace {

constexpr std::uint32_t kNone = ~0u;

std::string quoted(std::size_t id) { return "token " + std::to_string(id); }

}  // namespace

// Pieces of up to 15 bytes met before, with their tokens: a cache line each, two places per piece, the one used last
// first.
class PieceCache {
 public:
  static constexpr std::size_t kMaxBytes = 15, kMaxTokens = 11;

  struct Entry {
    std::uint64_t low, high;  // the bytes, padded with zeros; the last byte is their number, never 0
    std::uint32_t n_tokens;
    std::uint32_t tokens[kMaxTokens];
  };
  static_assert(sizeof(Entry) == 64);

  // The entry of a piece; when it is not there, an empty one (n_tokens == 0) to be filled.
  Entry& find(const Byte* bytes, std::size_t n_bytes) {
    const std::uint64_t low = load_short(bytes, std::min<std::size_t>(n_bytes, 8));
    const std::uint64_t rest = n_bytes > 8 ? load_short(bytes + 8, n_bytes - 8) : 0;
    const std::uint64_t high = rest | static_cast<std::uint64_t>(n_bytes) << 56;
    Entry* pair = &entries_[mix(low, high) & (kEntries - 2)];
    if (pair[0].low == low && pair[0].high == high) return pair[0];
    std::swap(pair[0], pair[1]);
    if (pair[0].low != low || pair[0].high != high) {
      pair[0].low = low;
      pair[0].high = high;
      pair[0].n_tokens = 0;
    }
    return pair[0];
  }

 private:
  static constexpr std::size_t kEntries = 1 << 16;

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  // calloc leaves pages untouched until they are used; one entry more makes room to align the first.
  std::unique_ptr<void, Free> memory_{std::calloc(kEntries + 1, sizeof(Entry))};
  Entry* entries_ = align(memory_.get());

  static Entry* align(void* memory) {
    if (!memory) throw std::bad_alloc();
    std::size_t space = (kEntries + 1) * sizeof(Entry);
    return static_cast<Entry*>(std::align(sizeof(Entry), kEntries * sizeof(Entry), memory, space));
  }
};

class Worker {
 public:
  PieceCache cache;
  MergeScratch scratch;
};

// Borrows an idle worker for one call, or makes one.
class Bpe::Lease {
 public:
  explicit Lease(const Bpe& bpe) : bpe_(bpe) {
    for (auto& slot : bpe.idle_) {
      if (slot.load(std::memory_order_relaxed) && (worker_ = slot.exchange(nullptr))) return;
    }
    worker_ = new Worker;
  }
  ~Lease() {
    for (auto& slot : bpe_.idle_) {
      Worker* empty = nullptr;
      if (slot.compare_exchange_strong(empty, worker_)) return;
    }
    delete worker_;
  }
  Lease(const Lease&) = delete;
  Worker& operator*() const { return *worker_; }

 private:
  const Bpe& bpe_;
  Worker* worker_ = nullptr;
};

Bpe::Bpe(const Scanner& scanner, std::vector<std::string> tokens, const std::optional<std::vector<Merge>>& merges,
         bool whole_pieces, std::vector<std::pair<std::uint32_t, std::string>> special_tokens)
    : whole_pieces_(whole_pieces), scanner_(scanner) {
  build_index(tokens);
  for (int byte = 0; byte < 256; ++byte) {
    const Byte bytes[] = {static_cast<Byte>(byte)};
    byte_tokens_[byte] = find(bytes, 1);
    if (byte_tokens_[byte] == kNone) throw std::invalid_argument("no token for the byte " + std::to_string(byte));
  }
  for (auto& [id, bytes] : special_tokens) {
    if (id >= tokens.size()) tokens.resize(id + 1);
    if (!tokens[id].empty()) throw std::invalid_argument("special " + quoted(id) + " has the id of another token");
    tokens[id] = std::move(bytes);
  }
  bytes_.clear();
  starts_.assign(1, 0);
  for (const std::string& token : tokens) {
    bytes_ += token;
    starts_.push_back(bytes_.size());
  }
  merges ? rules_from_merges(*merges) : rules_from_ranks();
}

Bpe::~Bpe() {
  for (auto& slot : idle_) delete slot.load();
}

void Bpe::build_index(const std::vector<std::string>& tokens) {
  // `find` reads token bytes through bytes_ and starts_, so the text tokens are laid out before special ones join.
  std::size_t size = 1024;
  while (size < 2 * tokens.size()) size *= 2;
  index_.assign(size, kNone);
  starts_.push_back(0);
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const auto* bytes = reinterpret_cast<const Byte*>(tokens[id].data());
    bytes_ += tokens[id];
    starts_.push_back(bytes_.size());
    if (tokens[id].empty()) continue;
    if (const std::uint32_t twin = find(bytes, tokens[id].size()); twin != kNone) {
      throw std::invalid_argument(quoted(twin) + " and " + quoted(id) + " have the same bytes");
    }
    std::size_t at = hash_bytes(bytes, tokens[id].size()) & (size - 1);
    while (index_[at] != kNone) at = (at + 1) & (size - 1);
    index_[at] = static_cast<std::uint32_t>(id);
  }
}

std::uint32_t Bpe::find(const Byte* bytes, std::size_t n_bytes) const {
  const std::string_view wanted(reinterpret_cast<const char*>(bytes), n_bytes);
  std::size_t at = hash_bytes(bytes, n_bytes) & (index_.size() - 1);
  while (index_[at] != kNone && bytes_of(index_[at]) != wanted) at = (at + 1) & (index_.size() - 1);
  return index_[at];
}

void Bpe::rules_from_merges(const std::vector<Merge>& merges) {
  std::string joined;
  for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merges[rank];
    const std::string place = "merge " + std::to_string(rank);
    if (bytes_of(left).empty() || bytes_of(right).empty()) throw std::invalid_argument(place + " names no token");
    joined.assign(bytes_of(left)).append(bytes_of(right));
    const std::uint32_t token = find(reinterpret_cast<const Byte*>(joined.data()), joined.size());
    if (token == kNone) throw std::invalid_argument(place + " gives bytes that are no token");
    rules_.add(left, right, {rank, token});
  }
}

void Bpe::rules_from_ranks() {
  for (std::uint32_t id : index_) {
    if (id == kNone) continue;
    const std::string_view token = bytes_of(id);
    const auto* bytes = reinterpret_cast<const Byte*>(token.data());
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const std::uint32_t left = find(bytes, cut);
      const std::uint32_t right = left == kNone ? kNone : find(bytes + cut, token.size() - cut);
      if (right != kNone) rules_.add(left, right, {id, id});
    }
  }
}

std::vector<Merge> Bpe::merges_by_rank() const {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id : index_) {
    if (id != kNone && bytes_of(id).size() > 1) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  std::vector<Merge> merges;
  std::vector<std::uint32_t> tokens;
  for (const std::uint32_t id : ids) {
    tokens.clear();
    for (const char byte : bytes_of(id)) tokens.push_back(byte_tokens_[static_cast<Byte>(byte)]);
    while (tokens.size() > 2) {
      std::size_t best = 0;
      Rule lowest;
      for (std::size_t at = 0; at + 1 < tokens.size(); ++at) {
        const Rule rule = rules_(tokens[at], tokens[at + 1]);
        if (rule.rank < std::min(lowest.rank, id)) lowest = rule, best = at;
      }
      if (lowest.rank == Rule::kNever) break;
      tokens[best] = lowest.token;
      tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    if (tokens.size() == 2) merges.push_back({tokens[0], tokens[1]});
  }
  return merges;
}

const std::vector<std::uint32_t>& Bpe::merge_bytes(Worker& worker, const Byte* bytes, std::size_t n_bytes) const {
  std::vector<std::uint32_t>& tokens = worker.scratch.tokens;
  if (whole_pieces_) {
    if (const std::uint32_t token = find(bytes, n_bytes); token != kNone) {
      tokens.assign(1, token);
      return tokens;
    }
  }
  if (n_bytes >= kNone) throw std::length_error("a piece of 4 GiB or more");
  tokens.resize(n_bytes);
  for (std::size_t at = 0; at < n_bytes; ++at) tokens[at] = byte_tokens_[bytes[at]];
  merge_piece(rules_, worker.scratch);
  return tokens;
}

template <class Token>
void Bpe::encode_piece(Worker& worker, const Byte* bytes, std::size_t n_bytes, std::vector<Token>& out) const {
  PieceCache::Entry* entry = n_bytes <= PieceCache::kMaxBytes ? &worker.cache.find(bytes, n_bytes) : nullptr;
  if (entry && entry->n_tokens) {
    out.insert(out.end(), entry->tokens, entry->tokens + entry->n_tokens);
    return;
  }
  const auto& tokens = merge_bytes(worker, bytes, n_bytes);
  out.insert(out.end(), tokens.begin(), tokens.end());
  if (entry && tokens.size() <= PieceCache::kMaxTokens) {
    std::copy(tokens.begin(), tokens.end(), entry->tokens);
    entry->n_tokens = static_cast<std::uint32_t>(tokens.size());
  }
}

template <class Token>
void Bpe::encode(const Byte* begin, const Byte* end, std::vector<Token>& out) const {
  const Lease lease(*this);
  scanner_.each_piece(begin, end,
                      [&](const Byte* piece, std::size_t n_bytes) { encode_piece(*lease, piece, n_bytes, out); });
}

void Bpe::encode_pieces(const Byte* begin, const std::int64_t* piece_ends, std::size_t n_pieces,
                        std::vector<std::uint32_t>& out) const {
  const Lease lease(*this);
  std::int64_t start = 0;
  for (std::size_t index = 0; index < n_pieces; start = piece_ends[index++]) {
    encode_piece(*lease, begin + start, static_cast<std::size_t>(piece_ends[index] - start), out);
  }
}

template <class Token>
void Bpe::encode_many(const std::vector<std::string_view>& texts, unsigned n_threads, std::vector<Token>& tokens,
                      std::int64_t* offsets) const {
  // Texts are handed out in runs of about a megabyte, so that one long text does not leave the other threads idle.
  constexpr std::size_t kRunBytes = 1 << 20;
  struct Run {
    std::size_t first, last;
    std::vector<Token> tokens;
  };
  std::vector<Run> runs;
  for (std::size_t first = 0, last = 0; first < texts.size(); first = last) {
    for (std::size_t n_bytes = 0; last < texts.size() && n_bytes < kRunBytes; ++last) n_bytes += texts[last].size();
    runs.push_back({first, last, {}});
  }
  std::atomic<std::size_t> next{0};
  in_threads(std::min<std::size_t>(n_threads, runs.size()), [&](std::size_t) {
    for (std::size_t index; (index = next++) < runs.size();) {
      Run& run = runs[index];
      for (std::size_t text = run.first; text < run.last; ++text) {
        const auto* bytes = reinterpret_cast<const Byte*>(texts[text].data());
        encode(bytes, bytes + texts[text].size(), run.tokens);
        offsets[text + 1] = static_cast<std::int64_t>(run.tokens.size());  // from the run's start, for now
      }
    }
  });

  offsets[0] = 0;
  if (runs.size() == 1) {
    tokens.swap(runs[0].tokens);
    return;
  }
  std::size_t n_tokens = 0;
  for (const Run& run : runs) n_tokens += run.tokens.size();
  tokens.reserve(n_tokens);
  for (Run& run : runs) {
    for (std::size_t text = run.first; text < run.last; ++text)
      offsets[text + 1] += static_cast<std::int64_t>(tokens.size());
    tokens.insert(tokens.end(), run.tokens.begin(), run.tokens.end());
    std::vector<Token>().swap(run.tokens);
  }
}

template void Bpe::encode(const Byte*, const Byte*, std::vector<std::uint16_t>&) const;
template void Bpe::encode(const Byte*, const Byte*, std::vector<std::uint32_t>&) const;
template void Bpe::encode_many(const std::vector<std::string_view>&, unsigned, std::vector<std::uint16_t>&,
                               std::int64_t*) const;
template void Bpe::encode_many(const std::vector<std::string_view>&, unsigned, std::vector<std::uint32_t>&,
                               std::int64_t*) const;

}  // namespace webtext
