#include "base/simd.hpp"
#ifdef WEBTEXT_NEON
#include <arm_neon.h>

#include "scan/blocks.hpp"

namespace webtext {
namespace {

class Neon : public EndsByEight {
 public:
  explicit Neon(const Byte* at) : bytes_(vld4q_u8(at)) {}

  Bits equal(char byte) const {
    return marked([byte](uint8x16_t bytes) { return vceqq_u8(bytes, vdupq_n_u8(static_cast<Byte>(byte))); });
  }
  Bits between(char first, char n) const {
    return marked([first, n](uint8x16_t bytes) {
      return vcltq_u8(vsubq_u8(bytes, vdupq_n_u8(static_cast<Byte>(first))), vdupq_n_u8(static_cast<Byte>(n)));
    });
  }
  Bits high() const {
    return marked([](uint8x16_t bytes) { return vcgeq_u8(bytes, vdupq_n_u8(0x80)); });
  }

 private:
  // Byte 4 i + k of the block is lane i of vector k, so the four bits of a lane are neighbours in the mask: vsri puts
  // them above each other, once in each half of the lane, and vshrn takes a half from every lane.
  template <class Test>
  Bits marked(const Test& test) const {
    const uint8x16_t low = vsriq_n_u8(test(bytes_.val[1]), test(bytes_.val[0]), 1);
    const uint8x16_t high = vsriq_n_u8(test(bytes_.val[3]), test(bytes_.val[2]), 1);
    const uint8x16_t four = vsriq_n_u8(high, low, 2), twice = vsriq_n_u8(four, four, 4);
    return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(twice), 4)), 0);
  }

  uint8x16x4_t bytes_;  // every fourth byte
};

}  // namespace

Scanner::Cut block_scanner_neon(std::size_t pattern) { return block_scanner<Neon>(pattern); }

}  // namespace webtext
#endif
