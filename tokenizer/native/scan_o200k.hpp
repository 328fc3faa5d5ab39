// Hand-written scanner for the pattern of OpenAI's o200k_base.
#pragma once

#include "scanner.hpp"

namespace webtext {

// Scanner::cut for the pattern "o200k".
std::size_t cut_o200k(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                      std::size_t max);

}  // namespace webtext
