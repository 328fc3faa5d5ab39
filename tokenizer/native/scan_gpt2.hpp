// GPT-2's split of text into pieces, by hand instead of by regular expression.
#pragma once

#include "scanner.hpp"

namespace webtext {

// Scanner::cut for the pattern "gpt2".
std::size_t cut_gpt2(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                     std::size_t max);

}  // namespace webtext
