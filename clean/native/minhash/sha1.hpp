// SHA-1 (FIPS 180-4, section 6.1), reduced to what datasketch uses: the first 32 bits of the digest, little-endian.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace webtext::minhash {

class Sha1 {
 public:
  // Returns the first four bytes of the digest as a little-endian number.
  static uint32_t first_word(std::string_view message) {
    Sha1 sha;
    size_t at = 0;
    for (; at + kBlock <= message.size(); at += kBlock) sha.absorb(message.data() + at);
    char tail[2 * kBlock] = {};
    const size_t rest = message.size() - at, padded = rest + 9 <= kBlock ? kBlock : 2 * kBlock;
    std::memcpy(tail, message.data() + at, rest);
    tail[rest] = static_cast<char>(0x80);
    const uint64_t n_bits = message.size() * 8;
    for (size_t i = 0; i < 8; ++i) tail[padded - 1 - i] = static_cast<char>(n_bits >> 8 * i);
    for (size_t block = 0; block < padded; block += kBlock) sha.absorb(tail + block);
    return __builtin_bswap32(sha.state_[0]);
  }

 private:
  static constexpr size_t kBlock = 64;

  void absorb(const char* block) {
    uint32_t w[80];
    for (size_t i = 0; i < 16; ++i) {
      std::memcpy(w + i, block + 4 * i, 4);
      w[i] = __builtin_bswap32(w[i]);
    }
    for (size_t i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = state_[0], b = state_[1], c = state_[2], d = state_[3], e = state_[4];
    auto rounds = [&](size_t first, uint32_t constant, auto mix) {
#pragma GCC unroll 20
      for (size_t i = first; i < first + 20; ++i) {
        const uint32_t next = std::rotl(a, 5) + mix() + e + constant + w[i];
        e = d;
        d = c;
        c = std::rotl(b, 30);
        b = a;
        a = next;
      }
    };
    rounds(0, 0x5A827999, [&] { return d ^ (b & (c ^ d)); });
    rounds(20, 0x6ED9EBA1, [&] { return b ^ c ^ d; });
    rounds(40, 0x8F1BBCDC, [&] { return (b & c) | (d & (b | c)); });
    rounds(60, 0xCA62C1D6, [&] { return b ^ c ^ d; });
    state_[0] += a;
    state_[1] += b;
    state_[2] += c;
    state_[3] += d;
    state_[4] += e;
  }

  uint32_t state_[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
};

}  // namespace webtext::minhash
