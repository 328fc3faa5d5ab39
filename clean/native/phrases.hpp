// Finds the phrases of C4's rules, ignoring the case of ASCII letters.
#pragma once

#include <cstdint>
#include <string_view>

namespace webtext::signals {

inline constexpr uint8_t kLoremIpsum = 1, kJavascript = 2, kPolicy = 4;

// Returns which of them the text contains, as bits.
uint8_t phrases_in(std::string_view text);

}  // namespace webtext::signals
