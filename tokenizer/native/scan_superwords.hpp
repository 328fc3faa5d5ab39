// GPT-2's pieces with words in a row joined into one piece, a run, so that merges may reach over the blank between
// words:
//
//   (?:C| ?\p{L}+)(?:C| \p{L}+)*| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+     with C = '(?:[sdmt]|ll|ve|re)
#pragma once

#include "scanner.hpp"

namespace webtext {

// Scanner::cut for the pattern "gpt2-superwords".
std::size_t cut_superwords(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                           std::size_t max);

// What a piece of GPT-2's pattern is: a word or contraction, which can begin a run; one that can also go on with it,
// because it begins with a blank or an apostrophe; or neither.
enum class WordKind { kNone, kFirst, kNext };

WordKind word_kind(const ClassTable& classes, const Byte* begin, const Byte* end);

// GPT-2's pattern, which runs are made of.
const Scanner& scanner_of_words();

}  // namespace webtext
