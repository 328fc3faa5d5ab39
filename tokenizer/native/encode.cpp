// Text to tokens, a window of pieces at a time: cut them; make the key of each and call for its cache line; look each
// up; merge those that are new, together, so that their memory accesses overlap; copy the tokens of all, without a
// branch on their number; remember the new ones.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <tuple>
#include <type_traits>

#include "bpe.hpp"
#include "merging.hpp"
#include "piece_file.hpp"
#include "safe_cut.hpp"
#include "scan_superwords.hpp"
#include "threads.hpp"

namespace webtext {

namespace {

constexpr std::uint32_t kNone = ~0u;
constexpr std::size_t kLongWindow = 4096;      // bytes
constexpr std::size_t kManyBuckets = 1 << 13;  // a worker that knows so many pieces takes all of the file: it goes on
constexpr std::size_t kMaxKept = 128;          // bytes of the longest pieces that are remembered

}  // namespace

class Worker {
 public:
  template <class Id>
  KnownPieces<Id>& table() {
    auto& table = std::get<std::unique_ptr<KnownPieces<Id>>>(tables_);
    if (!table) table = std::make_unique<KnownPieces<Id>>();
    return *table;
  }

  Merger merger;
  std::vector<std::uint32_t> scratch, window;
  bool has_file = false;  // whether the table holds the pieces of the file
  SuperwordJoiner::Scratch joining;

 private:
  std::tuple<std::unique_ptr<KnownPieces<std::uint16_t>>, std::unique_ptr<KnownPieces<std::uint32_t>>> tables_;
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

Bpe::~Bpe() {
  for (auto& slot : idle_) delete slot.load();
}

// Whether merging the bytes of some token gives others. Where it never does, a piece that is a token needs no look-up.
bool Bpe::some_unreachable() const {
  Worker worker;
  for (const auto [id, tag] : index_) {
    if (id == kNone) continue;
    const std::string_view token = bytes_of(id);
    if (merge_bytes(worker, reinterpret_cast<const Byte*>(token.data()), token.size()).size() > 1) return true;
  }
  return false;
}

const std::vector<std::uint32_t>& Bpe::merge_bytes(Worker& worker, const Byte* bytes, std::size_t n_bytes) const {
  if (whole_pieces_) {
    if (const std::uint32_t token = find(bytes, n_bytes); token != kNone) {
      worker.scratch.assign(1, token);
      return worker.scratch;
    }
  }
  if (merge_short_ && n_bytes <= kShortPiece) {
    std::uint16_t tokens[kShortPiece + ShortPiece::kSlack];
    const PieceKey key = PieceKey::of(bytes, n_bytes);
    ShortPiece piece{bytes, key.padded(), n_bytes, tokens, 0};
    merge_short_(narrow_rules_, &piece, 1);
    worker.scratch.assign(tokens, tokens + piece.n_tokens);
    return worker.scratch;
  }
  if (n_bytes > kShortPiece && is_orderly()) {
    const bool has_short = merge_short_ && merge_by_windows(worker, bytes, n_bytes, kShortPiece);
    if (has_short || merge_by_windows(worker, bytes, n_bytes, kLongWindow)) return worker.scratch;
  }
  return worker.merger(rules_, byte_tokens_, bytes, n_bytes);
}

// Merges a long piece in windows that overlap, which stay in the cache. In an orderly vocabulary a row of tokens is
// what merging gives if and only if each two neighbours are what merging their bytes gives; and neighbours in what
// merging gives for part of a text are so. So a window may go on where the one before left off, if both begin there
// with the same token (github/rust-gems, crates/bpe/README.md, on why). False where they do not: a longer window may
// help.
bool Bpe::merge_by_windows(Worker& worker, const Byte* bytes, std::size_t n_bytes, std::size_t window) const {
  if (n_bytes <= window) return false;
  std::vector<std::uint32_t>& out = worker.scratch;
  out.clear();
  std::uint32_t expected = kNone;
  for (std::size_t start = 0;;) {
    const std::size_t n_window = std::min(window, n_bytes - start);
    std::uint16_t narrow[kShortPiece + ShortPiece::kSlack];
    const std::uint32_t* tokens = nullptr;
    std::size_t n_tokens = 0;
    if (window <= kShortPiece) {
      const PieceKey key = PieceKey::of(bytes + start, n_window);
      ShortPiece piece{bytes + start, key.padded(), n_window, narrow, 0};
      merge_short_(narrow_rules_, &piece, 1);
      worker.window.assign(narrow, narrow + piece.n_tokens);
      tokens = worker.window.data(), n_tokens = piece.n_tokens;
    } else {
      const auto& merged = worker.merger(rules_, byte_tokens_, bytes + start, n_window);
      tokens = merged.data(), n_tokens = merged.size();
    }
    if (start > 0 && tokens[0] != expected) return false;
    if (start + n_window == n_bytes) {
      out.insert(out.end(), tokens, tokens + n_tokens);
      return true;
    }
    if (n_tokens < 2) return false;
    std::size_t n_kept = 0;
    for (std::size_t kept_bytes = 0; n_kept + 1 < n_tokens && kept_bytes < window / 2; ++n_kept) {
      const std::size_t n_token = bytes_of(tokens[n_kept]).size();
      kept_bytes += n_token;
      start += n_token;
    }
    out.insert(out.end(), tokens, tokens + n_kept);
    expected = tokens[n_kept];
  }
}

// Encodes with one worker. `Id` is what its table stores, `Token` what is written.
template <class Id, class Token>
class Bpe::Encoder {
 public:
  static constexpr std::size_t kWindow = 512;  // pieces

  Encoder(const Bpe& bpe, Worker& worker)
      : bpe_(bpe), worker_(worker), table_(worker.table<Id>()), view_(table_.view()), file_(bpe.file_of<Id>()) {}

  Token* encode(const Byte* begin, const Byte* end, Token* out) {
    if (!bpe_.joiner_) return encode_by(bpe_.scanner_, begin, end, out);
    Token* const words_end = encode_by(scanner_of_words(), begin, end, out);
    const auto n_joined = bpe_.joiner_->join(out, static_cast<std::size_t>(words_end - out), worker_.joining);
    return n_joined ? out + *n_joined : encode_by(bpe_.scanner_, begin, end, out);
  }

  Token* encode_by(const Scanner& scanner, const Byte* begin, const Byte* end, Token* out) {
    std::uint32_t ends[kWindow];
    while (begin < end) {
      const std::size_t n_pieces = scanner.cut(begin, end, ends, kWindow);
      out = encode_window(begin, end, ends, n_pieces, out);
      begin += ends[n_pieces - 1];
    }
    return out;
  }

  // The tokens of the pieces that end at begin + ends[i]; the text that they are of is readable up to `end`.
  Token* encode_window(const Byte* begin, const Byte* end, const std::uint32_t* ends, std::size_t n_pieces,
                       Token* out) {
    n_new_ = 0;
    if (file_ && !worker_.has_file && table_.n_buckets() >= kManyBuckets) {
      table_.adopt(*file_);
      worker_.has_file = true;
    }
    table_.reserve(n_pieces);
    view_ = table_.view();
    make_keys(begin, end, ends, n_pieces);
    const std::size_t n_missed = look_up(n_pieces);
    if (n_missed) merge_missed(begin, ends, n_missed);
    std::uint32_t start = 0;
    for (std::size_t index = 0; index < n_pieces; start = ends[index++]) {
      const Entry& entry = *found_[index];
      copy_all(entry.ids, out);
      if (entry.n <= kIds) [[likely]] {
        out += entry.n;
      } else {
        out = copy_many(entry, begin + start, ends[index] - start, out);
      }
    }
    for (std::size_t index = 0; index < n_new_; ++index) remember(index);
    return out;
  }

 private:
  using Table = KnownPieces<Id>;
  using Entry = KnownPiece<Id>;
  static constexpr std::size_t kIds = Entry::kIds;

  struct New {
    PieceKey key;
    const Byte* bytes;
    std::size_t n_bytes;
    std::size_t first, n_tokens;  // in new_tokens_
  };

  void make_keys(const Byte* begin, const Byte* end, const std::uint32_t* ends, std::size_t n_pieces) {
    const auto readable = static_cast<std::size_t>(end - begin);
    std::uint32_t start = 0;
    for (std::size_t index = 0; index < n_pieces; start = ends[index++]) {
      const std::uint32_t n_bytes = ends[index] - start;
      keys_[index] = readable - start >= sizeof(PieceKey) ? PieceKey::of_readable(begin + start, n_bytes)
                                                          : PieceKey::of(begin + start, n_bytes);
      hashes_[index] = static_cast<std::uint32_t>(keys_[index].hash());
      view_.prefetch(hashes_[index]);
    }
  }

  // Finds the entries of the window's pieces; lists those that have none in missed_ and returns their number.
  std::size_t look_up(std::size_t n_pieces) {
    std::size_t n_missed = 0;
    for (std::size_t index = 0; index < n_pieces; ++index) {
      const PieceKey key = keys_[index];
      const Entry* pair = view_.bucket(hashes_[index]);
      const bool first = pair[0].key == key, second = pair[1].key == key;
      found_[index] = pair + (first ? 0 : 1);
      missed_[n_missed] = static_cast<std::uint32_t>(index);
      n_missed += !(first | second);
    }
    return n_missed;
  }

  // Gives the missed pieces entries of their own, in new_entries_, from the file of pieces or by merging. They may not
  // go into the table before the tokens of all are copied: they could push out an entry that was found.
  void merge_missed(const Byte* begin, const std::uint32_t* ends, std::size_t n_missed) {
    new_tokens_.clear();
    for (std::size_t place = 0; place < n_missed; ++place) {
      const std::uint32_t index = missed_[place];
      if ((found_[index] = view_.find_second(keys_[index]))) continue;
      if (file_) file_->prefetch(hashes_[index]);
      const std::uint32_t start = index ? ends[index - 1] : 0;
      new_[n_new_] = {keys_[index], begin + start, ends[index] - start, 0, 0};
      found_[index] = &new_entries_[n_new_++];
    }
    if (file_) {
      for (std::size_t index = 0; index < n_new_; ++index) look_up_in_file(new_[index]);
    }
    if (bpe_.merge_short_ && !bpe_.whole_pieces_) merge_together();
    for (std::size_t index = 0; index < n_new_; ++index) {
      New& piece = new_[index];
      if (!piece.n_tokens) merge_alone(piece);
      Entry& entry = new_entries_[index];
      entry.n = piece.n_tokens <= kIds ? static_cast<Id>(piece.n_tokens) : Entry::kInArena;
      for (std::size_t id = 0; id < std::min(piece.n_tokens, kIds); ++id) {
        entry.ids[id] = static_cast<Id>(new_tokens_[piece.first + id]);
      }
    }
  }

  void look_up_in_file(New& piece) {
    const Entry* entry = file_->find(piece.key);
    if (!entry) return;
    if (entry->n <= kIds) return keep(piece, entry->ids, entry->n);
    const auto tokens = file_->in_arena(*entry, piece.bytes, piece.n_bytes);
    if (tokens.ids) keep(piece, tokens.ids, tokens.n);
  }

  template <class Number>
  void keep(New& piece, const Number* tokens, std::size_t n_tokens) {
    piece.first = new_tokens_.size();
    piece.n_tokens = n_tokens;
    new_tokens_.insert(new_tokens_.end(), tokens, tokens + n_tokens);
  }

  void merge_alone(New& piece) {
    const auto& tokens = bpe_.merge_bytes(worker_, piece.bytes, piece.n_bytes);
    keep(piece, tokens.data(), tokens.size());
  }

  // Merges the short ones.
  void merge_together() {
    const auto is_due = [](const New& piece) { return !piece.n_tokens && piece.n_bytes <= kShortPiece; };
    short_.clear();
    std::size_t n_bytes = 0;
    for (std::size_t index = 0; index < n_new_; ++index)
      n_bytes += is_due(new_[index]) ? new_[index].n_bytes + ShortPiece::kSlack : 0;
    short_tokens_.resize(n_bytes);
    std::uint16_t* room = short_tokens_.data();
    for (std::size_t index = 0; index < n_new_; ++index) {
      if (!is_due(new_[index])) continue;
      short_.push_back({new_[index].bytes, new_[index].key.padded(), new_[index].n_bytes, room, 0});
      room += new_[index].n_bytes + ShortPiece::kSlack;
    }
    bpe_.merge_short_(bpe_.narrow_rules_, short_.data(), short_.size());
    std::size_t next = 0;
    for (std::size_t index = 0; index < n_new_; ++index) {
      if (!is_due(new_[index])) continue;
      const ShortPiece& merged = short_[next++];
      keep(new_[index], merged.tokens, merged.n_tokens);
    }
  }

  void remember(std::size_t index) {
    const New& piece = new_[index];
    if (piece.n_bytes > kMaxKept) return;
    table_.insert(piece.key, piece.bytes, piece.n_bytes, &new_tokens_[piece.first], piece.n_tokens);
  }

  // All ids that an entry has room for, and one more for an even number.
  static void copy_all(const Id* ids, Token* out) {
    if constexpr (sizeof(Id) == sizeof(Token)) {
      std::memcpy(out, ids, 16);
    } else {
      Id read[16 / sizeof(Id)];
      std::memcpy(read, ids, 16);
      for (std::size_t index = 0; index < 16 / sizeof(Id); ++index) out[index] = read[index];
    }
  }

  static Token* copy(const std::uint32_t* ids, std::size_t n_ids, Token* out) {
    for (std::size_t index = 0; index < n_ids; ++index) out[index] = static_cast<Token>(ids[index]);
    return out + n_ids;
  }

  // The tokens of a piece that has more than an entry holds, or of a long one.
  [[gnu::noinline]] Token* copy_many(const Entry& entry, const Byte* bytes, std::size_t n_bytes, Token* out) {
    if (&entry >= new_entries_ && &entry < new_entries_ + kWindow) {
      const New& piece = new_[&entry - new_entries_];
      return copy(&new_tokens_[piece.first], piece.n_tokens, out);
    }
    const auto tokens = view_.in_arena(entry, bytes, n_bytes);
    if (tokens.ids) return copy(tokens.ids, tokens.n, out);
    const auto& merged = bpe_.merge_bytes(worker_, bytes, n_bytes);  // another long piece with the same hash
    return copy(merged.data(), merged.size(), out);
  }

  const Bpe& bpe_;
  Worker& worker_;
  Table& table_;
  KnownPiecesView<Id> view_;         // of it, for one window
  const KnownPiecesView<Id>* file_;  // or null
  PieceKey keys_[kWindow];
  std::uint32_t hashes_[kWindow], missed_[kWindow];
  const Entry* found_[kWindow];
  New new_[kWindow];
  Entry new_entries_[kWindow];
  std::size_t n_new_ = 0;
  std::vector<std::uint32_t> new_tokens_;
  std::vector<ShortPiece> short_;
  std::vector<std::uint16_t> short_tokens_;
};

template <class Id>
std::string Bpe::piece_file_of(const std::vector<std::string_view>& pieces, std::string_view salt) const {
  std::size_t n_buckets = 1024;
  while (n_buckets < pieces.size()) n_buckets *= 2;
  KnownPieces<Id> known(n_buckets);
  const Lease lease(*this);
  for (const std::string_view piece : pieces) {
    const auto* bytes = reinterpret_cast<const Byte*>(piece.data());
    if (piece.empty() || piece.size() > kMaxKept) continue;
    const auto& tokens = merge_bytes(*lease, bytes, piece.size());
    known.insert(PieceKey::of(bytes, piece.size()), bytes, piece.size(), tokens.data(), tokens.size(), true);
  }
  return webtext::piece_file(known, fingerprint(salt));
}

std::string Bpe::piece_file(const std::vector<std::string_view>& pieces, std::string_view salt) const {
  return is_narrow_ ? piece_file_of<std::uint16_t>(pieces, salt) : piece_file_of<std::uint32_t>(pieces, salt);
}

std::vector<std::string_view> Bpe::own_pieces() const {
  std::vector<std::string_view> pieces;
  for (std::uint32_t id = 0; id < n_text_tokens_; ++id) {
    const std::string_view token = bytes_of(id);
    const auto* bytes = reinterpret_cast<const Byte*>(token.data());
    std::uint32_t ends[2];
    if (!token.empty() && !text_bytes_of(id).empty() && scanner_.cut(bytes, bytes + token.size(), ends, 2) == 1)
      pieces.push_back(token);
  }
  return pieces;
}

// Whether the tokens of every piece have its bytes: then whatever else a file says, decoding gives a text back.
template <class Id>
KnownPiecesView<Id> Bpe::checked(const KnownPiecesView<Id>& pieces) const {
  using Entry = KnownPiece<Id>;
  pieces.each([&](const Entry& entry) {
    std::uint32_t ids[Entry::kIds];
    std::copy_n(entry.ids, Entry::kIds, ids);
    if (entry.key.is_odd()) throw std::invalid_argument("it is damaged");
    typename KnownPiecesView<Id>::Stored found{{ids, entry.n}, nullptr, 0, 0};
    if (entry.n > Entry::kIds) found = pieces.stored(entry);
    if (!entry.key.is_long()) found.bytes = entry.key.padded(), found.n_bytes = entry.key.n_bytes();
    std::size_t at = 0;
    for (std::size_t index = 0; index < found.tokens.n; ++index) {
      const std::string_view token = text_bytes_of(found.tokens.ids[index]);
      const bool fits = !token.empty() && token.size() <= found.n_bytes - at;
      if (!fits || std::memcmp(token.data(), found.bytes + at, token.size()))
        throw std::invalid_argument("it is damaged");
      at += token.size();
    }
    if (at == 0 || at != found.n_bytes) throw std::invalid_argument("it is damaged");
  });
  return pieces;
}

void Bpe::use_piece_file(const Byte* file, std::size_t n_bytes, std::string_view salt, std::shared_ptr<void> owner) {
  if (is_narrow_) {
    narrow_pieces_ = checked(pieces_in<std::uint16_t>(file, n_bytes, fingerprint(salt)));
  } else {
    wide_pieces_ = checked(pieces_in<std::uint32_t>(file, n_bytes, fingerprint(salt)));
  }
  file_ = std::move(owner);
}

// Of all that decides what the tokens of a piece are.
std::uint64_t Bpe::fingerprint(std::string_view salt) const {
  std::uint64_t hash = hash_bytes(reinterpret_cast<const Byte*>(salt.data()), salt.size());
  hash = mix(hash, whole_pieces_);
  for (std::uint32_t id = 0; id < n_text_tokens_; ++id) {
    const std::string_view token = text_bytes_of(id);
    hash = mix(hash, hash_bytes(reinterpret_cast<const Byte*>(token.data()), token.size()));
  }
  std::uint64_t rules = 0;  // a sum: in whatever order they are stored
  rules_.each([&](std::uint32_t left, std::uint32_t right, Rule rule) {
    rules +=
        mix(static_cast<std::uint64_t>(left) << 32 | right, static_cast<std::uint64_t>(rule.rank) << 32 | rule.token);
  });
  return mix(hash, rules);
}

// Calls use(encoder) with a worker and the table that fits the vocabulary.
template <class Token, class Use>
void Bpe::with_encoder(const Use& use) const {
  const Lease lease(*this);
  if constexpr (std::is_same_v<Token, std::uint16_t>) {
    Encoder<std::uint16_t, std::uint16_t> encoder(*this, *lease);
    use(encoder);
  } else if (is_narrow_) {
    Encoder<std::uint16_t, std::uint32_t> encoder(*this, *lease);
    use(encoder);
  } else {
    Encoder<std::uint32_t, std::uint32_t> encoder(*this, *lease);
    use(encoder);
  }
}

namespace {

constexpr std::ptrdiff_t kJobBytes = 1 << 18;

// Where a share of a text ends: the whole of it, or about kJobBytes, cut where the pattern cuts.
const Byte* share_end(const Scanner& scanner, const Byte* begin, const Byte* end) {
  if (end - begin <= 2 * kJobBytes) return end;
  return safe_cut(scanner.classes(), begin, begin + kJobBytes, end, scanner.joins_words());
}

}  // namespace

template <class Token>
std::size_t Bpe::encode(const Byte* begin, const Byte* end, Token* out) const {
  std::size_t n_tokens = 0;
  with_encoder<Token>(
      [&](auto& encoder) { n_tokens = static_cast<std::size_t>(encoder.encode(begin, end, out) - out); });
  return n_tokens;
}

std::size_t Bpe::count(const Byte* begin, const Byte* end) const {
  std::size_t n_tokens = 0;
  with_encoder<std::uint32_t>([&](auto& encoder) {
    std::vector<std::uint32_t> tokens;
    const auto room_for = [&](std::size_t n_bytes) {
      if (tokens.size() < n_bytes + kSlack) tokens.resize(n_bytes + kSlack);
      return tokens.data();
    };
    while (joiner_ && begin < end) {
      const Byte* until = share_end(scanner_, begin, end);
      std::uint32_t* out = room_for(static_cast<std::size_t>(until - begin));
      n_tokens += static_cast<std::size_t>(encoder.encode(begin, until, out) - out);
      begin = until;
    }
    std::uint32_t ends[1024];
    while (begin < end) {
      const std::size_t n_pieces = scanner_.cut(begin, end, ends, encoder.kWindow);
      const std::uint32_t n_bytes = ends[n_pieces - 1];
      room_for(n_bytes);
      n_tokens +=
          static_cast<std::size_t>(encoder.encode_window(begin, end, ends, n_pieces, tokens.data()) - tokens.data());
      begin += n_bytes;
    }
  });
  return n_tokens;
}

std::size_t Bpe::encode_pieces(const Byte* begin, const std::int64_t* piece_ends, std::size_t n_pieces,
                               std::uint32_t* out) const {
  std::uint32_t* room = out;
  with_encoder<std::uint32_t>([&](auto& encoder) {
    const Byte* end = begin + (n_pieces ? piece_ends[n_pieces - 1] : 0);
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

namespace {

// A part of a text, or all of it, for one thread to encode.
struct Share {
  const Byte *begin, *end;
  std::size_t text;
  bool ends_text;
};

// Shares in the order of the text, a long text cut where every pattern cuts, and where each job of about kJobBytes
// begins.
struct Jobs {
  Jobs(const std::vector<std::string_view>& texts, const Scanner& scanner) {
    std::ptrdiff_t n_bytes = kJobBytes;
    for (std::size_t text = 0; text < texts.size(); ++text) {
      const auto* begin = reinterpret_cast<const Byte*>(texts[text].data());
      const Byte* end = begin + texts[text].size();
      do {
        const Byte* until = share_end(scanner, begin, end);
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

  std::vector<Share> shares;
  std::vector<std::size_t> firsts;
};

// Hands out places in the output in the order of jobs: a job that is done waits for those before it.
class Turns {
 public:
  // The tokens before those of a job; false when another thread failed.
  bool take(std::size_t job, std::size_t n_tokens, std::size_t& before) {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return job_ == job || failed_; });
    if (failed_) return false;
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
void Bpe::encode_many(const std::vector<std::string_view>& texts, unsigned n_threads, Token* out,
                      std::int64_t* offsets) const {
  offsets[0] = 0;
  if (n_threads <= 1) {
    with_encoder<Token>([&](auto& encoder) {
      Token* room = out;
      for (std::size_t index = 0; index < texts.size(); ++index) {
        const auto* bytes = reinterpret_cast<const Byte*>(texts[index].data());
        room = encoder.encode(bytes, bytes + texts[index].size(), room);
        offsets[index + 1] = room - out;
      }
    });
    return;
  }
  const Jobs jobs(texts, scanner_);
  std::atomic<std::size_t> next{0};
  Turns turns;
  const auto work = [&](std::size_t) {
    with_encoder<Token>([&](auto& encoder) {
      std::unique_ptr<Token[]> tokens;  // of one job, copied while they are in the cache
      std::size_t n_room = 0;
      for (std::size_t job; (job = next++) < jobs.size();) {
        const Share *first = &jobs.shares[jobs.firsts[job]], *last = jobs.shares.data() + jobs.firsts[job + 1];
        std::size_t n_bytes = 0;
        for (const Share* share = first; share < last; ++share)
          n_bytes += static_cast<std::size_t>(share->end - share->begin);
        if (n_room < n_bytes + kSlack) {
          n_room = n_bytes + kSlack;
          tokens.reset(new Token[n_room]);
        }
        Token* room = tokens.get();
        for (const Share* share = first; share < last; ++share) {
          room = encoder.encode(share->begin, share->end, room);
          if (share->ends_text) offsets[share->text + 1] = room - tokens.get();
        }
        std::size_t before = 0;
        const auto n_tokens = static_cast<std::size_t>(room - tokens.get());
        if (!turns.take(job, n_tokens, before)) return;
        std::copy_n(tokens.get(), n_tokens, out + before);
        for (const Share* share = first; share < last; ++share) {
          if (share->ends_text) offsets[share->text + 1] += static_cast<std::int64_t>(before);
        }
      }
    });
  };
  in_threads(std::max<std::size_t>(1, std::min<std::size_t>(n_threads, jobs.size())), [&](std::size_t thread) {
    try {
      work(thread);
    } catch (...) {
      turns.fail();
      throw;
    }
  });
}

template std::size_t Bpe::encode(const Byte*, const Byte*, std::uint16_t*) const;
template std::size_t Bpe::encode(const Byte*, const Byte*, std::uint32_t*) const;
template void Bpe::encode_many(const std::vector<std::string_view>&, unsigned, std::uint16_t*, std::int64_t*) const;
template void Bpe::encode_many(const std::vector<std::string_view>&, unsigned, std::uint32_t*, std::int64_t*) const;

}  // namespace webtext
