#include "scan/scanner.hpp"

#include <string>

#include "scan/gpt2.hpp"

namespace webtext {
namespace {

Scanner::Cut cut_of(std::string_view pattern) {
  if (pattern == "gpt2") return gpt2_cut();
  if (pattern == "cl100k") return &cut_cl100k;
  if (pattern == "llama3") return &cut_llama3;
  if (pattern == "qwen2") return &cut_qwen2;
  if (pattern == "o200k") return &cut_o200k;
  throw std::invalid_argument("no scanner for the pattern " + std::string(pattern));
}

}  // namespace

Scanner::Scanner(std::string_view pattern, std::string_view unicode_version)
    : classes_(ClassTable::of(unicode_version)), cut_(cut_of(pattern)) {}

}  // namespace webtext
