// N-grams of words: a rolling hash finds candidates, and comparing the words decides.
//
// Time and memory are linear in the bytes: an n-gram is compared only if its 64-bit hash is in the table, and over all
// windows of a text these comparisons read each word at most n times.
#include "ngrams/ngrams.hpp"

#include <algorithm>
#include <stdexcept>

namespace webtext::ngrams {
namespace {

constexpr size_t kFirstSlots = 1024;
constexpr uint64_t kTagMask = 0xFFFFFFFFu;
constexpr size_t kAhead = 16;  // n-grams from prefetching a slot to reading it: 185 MB per CPU second, 74 without

// In `known` one blank follows each word; in `ngram` any number of blanks separates words. `known` continues after its
// n-gram, but no n-gram is a prefix of another, so text that equals all of `ngram` is the same n-gram.
bool equal_words(const char* known, std::string_view ngram) {
  for (size_t at = 0; at < ngram.size();) {
    while (ngram[at] == ' ') ++at;
    for (; at < ngram.size() && ngram[at] != ' '; ++at, ++known) {
      if (*known != ngram[at]) return false;
    }
    if (*known++ != ' ') return false;
  }
  return true;
}

}  // namespace

Table::Table(size_t n) : n_(n), window_(n), slots_(kFirstSlots) {}

void Table::add(std::string_view text, std::vector<int64_t>& numbers) {
  const size_t begin = words_.size();
  minhash::append_words(folder_.fold(text), words_);
  window_.slide(std::string_view(words_).substr(begin), folder_.has_letters(),
                [&](uint64_t hash, std::string_view ngram) { insert(hash, ngram, numbers); });
}

void Table::insert(uint64_t hash, std::string_view ngram, std::vector<int64_t>& numbers) {
  if (2 * (entries_.size() + 1) > slots_.size()) grow();
  const size_t slot = find_slot(hash, ngram);
  if (slots_[slot] == 0) {
    if (entries_.size() == kTagMask - 1) throw std::length_error("more than 2^32 - 2 n-grams");
    entries_.push_back({hash, static_cast<size_t>(ngram.data() - words_.data())});
    slots_[slot] = (hash & ~kTagMask) | entries_.size();
  }
  numbers.push_back(static_cast<int64_t>((slots_[slot] & kTagMask) - 1));
}

// Returns the slot of the n-gram, or the free slot for it.
size_t Table::find_slot(uint64_t hash, std::string_view ngram) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if (((slots_[slot] ^ hash) & ~kTagMask) != 0) continue;
    if (equal_words(words_.data() + entries_[(slots_[slot] & kTagMask) - 1].start, ngram)) break;
  }
  return slot;
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

Finder::Finder(const Table& table) : table_(table), ngrams_(table.n_) {}

void Finder::find(std::string_view text, std::vector<int64_t>& numbers) {
  struct Pending {
    uint64_t hash;
    std::string_view ngram;
  } pending[kAhead];
  size_t n_seen = 0;
  const auto look_up = [&](const Pending& each) {
    const uint64_t found = table_.slots_[table_.find_slot(each.hash, each.ngram)];
    if (found != 0) numbers.push_back(static_cast<int64_t>((found & kTagMask) - 1));
  };
  ngrams_.each(text, [&](uint64_t hash, std::string_view ngram) {
    __builtin_prefetch(&table_.slots_[hash & (table_.slots_.size() - 1)]);
    Pending& oldest = pending[n_seen % kAhead];
    if (n_seen++ >= kAhead) look_up(oldest);
    oldest = {hash, ngram};
  });
  for (size_t i = n_seen - std::min(n_seen, kAhead); i < n_seen; ++i) look_up(pending[i % kAhead]);
}

}  // namespace webtext::ngrams
