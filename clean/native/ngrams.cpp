// N-grams of words: a rolling hash finds candidates, a comparison of the words themselves decides.
//
// Time and memory are linear in the bytes: an n-gram is compared only where its 64-bit hash is met, and over all
// windows of a text these comparisons read each of its words at most n times.
#include "ngrams.hpp"

#include <algorithm>
#include <stdexcept>

#include "words.hpp"

namespace webtext::ngrams {
namespace {

constexpr size_t kFirstSlots = 1024;
constexpr uint64_t kTagMask = 0xFFFFFFFFu;
constexpr size_t kAhead =
    16;  // a slot is fetched so many n-grams before it is looked at: waiting for memory was most of the time

// The n-gram's words lie in `known` with one blank behind each, in `words` with any number between them.
bool equal_words(const char* known, std::string_view words, size_t at, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    while (words[at] == ' ') ++at;
    for (; at < words.size() && words[at] != ' '; ++at, ++known) {
      if (*known != words[at]) return false;
    }
    if (*known++ != ' ') return false;
  }
  return true;
}

}  // namespace

Window::Window(size_t n) : n_(n), leaving_factor_(1), hashes_(n), starts_(n) {
  if (n == 0) throw std::invalid_argument("an n-gram has at least one word");
  for (size_t i = 0; i < n; ++i) leaving_factor_ *= minhash::kGolden;
}

template <typename Visit>
void Window::slide(std::string_view words, Visit visit) {
  std::fill(hashes_.begin(), hashes_.end(), 0);
  uint64_t rolling = 0;
  size_t n_words = 0, slot = 0;
  for (size_t at = 0; at < words.size();) {
    if (words[at] == ' ') {
      ++at;
      continue;
    }
    starts_[slot] = at;
    const uint64_t word = minhash::hash_word(words, at);
    rolling = rolling * minhash::kGolden + word - hashes_[slot] * leaving_factor_;
    hashes_[slot] = word;
    if (++slot == n_) slot = 0;
    if (++n_words >= n_) visit(minhash::mix(rolling), starts_[slot]);  // the oldest word is next to leave
  }
}

Table::Table(size_t n) : n_(n), window_(n), slots_(kFirstSlots) {}

void Table::add(std::string_view text, std::vector<int64_t>& numbers) {
  const size_t begin = words_.size();
  for (const char byte : folder_.fold(text)) {
    if (byte != ' ' || (words_.size() > begin && words_.back() != ' ')) words_ += byte;
  }
  if (words_.size() > begin && words_.back() != ' ') words_ += ' ';
  const std::string_view added = std::string_view(words_).substr(begin);
  window_.slide(added, [&](uint64_t hash, size_t start) { insert(hash, begin + start, numbers); });
}

void Table::insert(uint64_t hash, size_t start, std::vector<int64_t>& numbers) {
  if (2 * (entries_.size() + 1) > slots_.size()) grow();
  const size_t slot = find_slot(hash, words_, start);
  if (slots_[slot] == 0) {
    if (entries_.size() == kTagMask - 1) throw std::length_error("more than 2^32 - 2 n-grams");
    entries_.push_back({hash, start});
    slots_[slot] = (hash & ~kTagMask) | entries_.size();
  }
  numbers.push_back(static_cast<int64_t>((slots_[slot] & kTagMask) - 1));
}

// The slot of the n-gram whose words begin at `at`, or the free one where it belongs.
size_t Table::find_slot(uint64_t hash, std::string_view words, size_t at) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if (((slots_[slot] ^ hash) & ~kTagMask) == 0 && has_words((slots_[slot] & kTagMask) - 1, words, at)) break;
  }
  return slot;
}

bool Table::has_words(size_t number, std::string_view words, size_t at) const {
  return equal_words(words_.data() + entries_[number].start, words, at, n_);
}

std::vector<uint64_t> Table::hashes() const {
  std::vector<uint64_t> all;
  all.reserve(entries_.size());
  for (const Entry& entry : entries_) all.push_back(entry.hash);
  return all;
}

void Hasher::hash(std::string_view text, std::vector<uint64_t>& hashes) {
  window_.slide(folder_.fold(text), [&](uint64_t hash, size_t) { hashes.push_back(hash); });
}

void Table::grow() {
  std::vector<uint64_t> larger(slots_.size() * 2);
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = entries_[i].hash & (larger.size() - 1);
    while (larger[slot] != 0) slot = (slot + 1) & (larger.size() - 1);
    larger[slot] = (entries_[i].hash & ~kTagMask) | (i + 1);
  }
  slots_ = std::move(larger);
}

Finder::Finder(const Table& table) : table_(table), window_(table.n()) {}

void Finder::find(std::string_view text, std::vector<int64_t>& numbers) {
  const std::string_view words = folder_.fold(text);
  struct Pending {
    uint64_t hash;
    size_t start;
  } pending[kAhead];
  size_t n_seen = 0;
  const auto look_up = [&](const Pending& ngram) {
    const uint64_t found = table_.slots_[table_.find_slot(ngram.hash, words, ngram.start)];
    if (found != 0) numbers.push_back(static_cast<int64_t>((found & kTagMask) - 1));
  };
  window_.slide(words, [&](uint64_t hash, size_t start) {
    __builtin_prefetch(&table_.slots_[hash & (table_.slots_.size() - 1)]);
    Pending& oldest = pending[n_seen % kAhead];
    if (n_seen++ >= kAhead) look_up(oldest);
    oldest = {hash, start};
  });
  for (size_t i = n_seen - std::min(n_seen, kAhead); i < n_seen; ++i) look_up(pending[i % kAhead]);
}

}  // namespace webtext::ngrams
