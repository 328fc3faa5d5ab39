// Hand-written scanners for the pattern of OpenAI's cl100k_base and its variants.
#pragma once

#include "scanner.hpp"

namespace webtext {

// Scanner::cut for the patterns "cl100k", "llama3" and "qwen2".
std::size_t cut_cl100k(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                       std::size_t max);
std::size_t cut_llama3(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                       std::size_t max);
std::size_t cut_qwen2(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                      std::size_t max);

}  // namespace webtext
