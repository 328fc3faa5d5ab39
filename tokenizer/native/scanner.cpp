#include "scanner.hpp"

#include <string>

#include "scan_gpt2.hpp"
#include "scan_superwords.hpp"

namespace webtext {

Scanner::Scanner(std::string_view pattern, std::string_view unicode_version) : classes_(ClassTable::instance()) {
  if (unicode_version != kUnicodeVersion) {
    throw std::invalid_argument("no tables of Unicode " + std::string(unicode_version));
  }
  if (pattern == "gpt2") {
    cut_ = gpt2_cut();
  } else if (pattern == "gpt2-superwords") {
    cut_ = &cut_superwords;
    joins_words_ = true;
  } else {
    throw std::invalid_argument("no scanner for the pattern " + std::string(pattern));
  }
}

}  // namespace webtext
