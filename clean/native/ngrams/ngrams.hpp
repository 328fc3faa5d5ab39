// Finds the n-grams of evaluation examples in other texts, exactly: every match is compared word by word.
// The readable twin is tests/reference/ngrams.py; both return equal results for every input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "words/words.hpp"

namespace webtext::ngrams {

// Distinct n-grams, numbered in order of first occurrence.
class Table {
 public:
  explicit Table(size_t n);
  // Adds a text's n-grams and appends the number of each to `numbers`, in text order, repeats included.
  void add(std::string_view text, std::vector<int64_t>& numbers);
  size_t size() const { return entries_.size(); }
  mutable std::shared_mutex mutex;  // callers whose threads share the table add alone, and find together

 private:
  friend class Finder;
  struct Entry {
    uint64_t hash;
    size_t start;  // where its words start in words_
  };

  void insert(uint64_t hash, std::string_view ngram, std::vector<int64_t>& numbers);
  size_t find_slot(uint64_t hash, std::string_view ngram) const;
  void grow();

  size_t n_;
  minhash::Folder folder_;
  minhash::Window window_;
  std::string words_;  // of all added texts, each word followed by a blank
  std::vector<Entry> entries_;
  std::vector<uint64_t> slots_;  // open addressing by the hash's low half: (high half, number + 1); 0: free
};

// Looks texts up in a table that no longer grows; each thread needs its own.
class Finder {
 public:
  explicit Finder(const Table& table);
  // Appends the number of each n-gram of the text that is in the table, in text order, repeats included.
  void find(std::string_view text, std::vector<int64_t>& numbers);

 private:
  const Table& table_;
  minhash::Ngrams ngrams_;
};

}  // namespace webtext::ngrams
