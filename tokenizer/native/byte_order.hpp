#pragma once

#include <algorithm>
#include <array>

#include "characters.hpp"

namespace webtext {

// GPT-2's order of the 256 bytes, which are tokens 0 to 255: those with a visible Latin-1 character first.
inline const std::array<Byte, 256>& byte_order() {
  static const std::array<Byte, 256> order = [] {
    std::array<Byte, 256> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes[byte] = static_cast<Byte>(byte);
    const auto visible = [](Byte byte) { return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD); };
    std::stable_partition(bytes.begin(), bytes.end(), visible);
    return bytes;
  }();
  return order;
}

}  // namespace webtext
