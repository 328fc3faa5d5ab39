// The phrases that C4 looks for, found whatever the case of their ASCII letters.
#pragma once

#include <cstdint>
#include <string_view>

namespace webtext::signals {

inline constexpr uint8_t kLoremIpsum = 1, kJavascript = 2, kPolicy = 4;

// Which of them the text holds, as bits.
uint8_t phrases_in(std::string_view text);

}  // namespace webtext::signals
