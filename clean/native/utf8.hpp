// Decodes UTF-8, one character at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace webtext {

struct Character {
  uint32_t code, size;
};

inline bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Decodes the character at `at`, which is before `end`; an invalid byte is U+FFFD of size 1.
inline Character decode(const char* at, const char* end) {
  const auto bits = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(at[i])) & 0x3F; };
  const auto continue_for = [&](ptrdiff_t n) {
    if (end - at <= n) return false;
    for (ptrdiff_t i = 1; i <= n; ++i) {
      if (!continues(at[i])) return false;
    }
    return true;
  };
  const uint32_t lead = static_cast<uint8_t>(*at);
  if (lead < 0x80) return {lead, 1};
  if (lead >= 0xC2 && lead < 0xE0 && continue_for(1)) return {(lead & 0x1F) << 6 | bits(1), 2};
  if (lead >= 0xE0 && lead < 0xF0 && continue_for(2)) {
    const uint32_t code = (lead & 0x0F) << 12 | bits(1) << 6 | bits(2);
    if (code >= 0x800 && (code < 0xD800 || code > 0xDFFF)) return {code, 3};
  }
  if (lead >= 0xF0 && lead < 0xF5 && continue_for(3)) {
    const uint32_t code = (lead & 0x07) << 18 | bits(1) << 12 | bits(2) << 6 | bits(3);
    if (code >= 0x10000 && code <= 0x10FFFF) return {code, 4};
  }
  return {0xFFFD, 1};
}

}  // namespace webtext
