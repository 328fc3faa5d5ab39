#include "scan/scanner.hpp"

#include <string>

#include "scan/gpt2.hpp"

namespace webtext {

Scanner::Scanner(std::string_view pattern, std::string_view unicode_version)
    : classes_(ClassTable::of(unicode_version)) {
  if (pattern == "gpt2") {
    cut_ = gpt2_cut();
  } else if (pattern == "cl100k") {
    cut_ = &cut_cl100k;
  } else if (pattern == "llama3") {
    cut_ = &cut_llama3;
  } else if (pattern == "qwen2") {
    cut_ = &cut_qwen2;
  } else if (pattern == "o200k") {
    cut_ = &cut_o200k;
  } else {
    throw std::invalid_argument("no scanner for the pattern " + std::string(pattern));
  }
}

}  // namespace webtext
