// Finds phrases by anchors: a rare group of three letters in each, searched at sixteen positions at a time, then
// compared.
#include <bit>
#include <cstring>

#include "signals/measurer.hpp"

namespace webtext::signals {
namespace {

constexpr size_t kBlock = 16, kAnchor = 3;
typedef uint8_t Bytes __attribute__((vector_size(kBlock)));

struct Phrase {
  std::string_view words;
  size_t anchor;  // offset of the anchor
  uint8_t kind;
};
constexpr Phrase kPhrases[] = {
    {"javascript", 0, kJavascript},  {"lorem ipsum", 7, kLoremIpsum}, {"terms of use", 2, kPolicy},
    {"privacy policy", 11, kPolicy}, {"cookie policy", 10, kPolicy},  {"uses cookies", 7, kPolicy},
    {"use of cookies", 9, kPolicy},  {"use cookies", 6, kPolicy},
};
constexpr char kAnchors[][kAnchor + 1] = {"jav", "psu", "rms", "icy", "oki"};

char lower(char letter) { return 'A' <= letter && letter <= 'Z' ? static_cast<char>(letter + 32) : letter; }

bool stands_at(std::string_view text, size_t at, std::string_view words) {
  if (at > text.size() || text.size() - at < words.size()) return false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (lower(text[at + i]) != words[i]) return false;
  }
  return true;
}

uint8_t phrases_around(std::string_view text, size_t at) {
  uint8_t found = 0;
  for (const Phrase& phrase : kPhrases) {
    if (at >= phrase.anchor && stands_at(text, at - phrase.anchor, phrase.words)) found |= phrase.kind;
  }
  return found;
}

// Returns a bit for each of sixteen positions where an anchor may begin; reads 18 bytes.
uint32_t anchors_at(const char* text) {
  Bytes first, second, third;
  std::memcpy(&first, text, kBlock);
  std::memcpy(&second, text + 1, kBlock);
  std::memcpy(&third, text + 2, kBlock);
  first |= 0x20, second |= 0x20, third |= 0x20;  // other bytes may become letters too, so hits are compared
  Bytes hits{};
  for (const auto& anchor : kAnchors) {
    hits |= Bytes(first == static_cast<uint8_t>(anchor[0])) & Bytes(second == static_cast<uint8_t>(anchor[1])) &
            Bytes(third == static_cast<uint8_t>(anchor[2]));
  }
  uint64_t halves[2];
  std::memcpy(halves, &hits, kBlock);
  if ((halves[0] | halves[1]) == 0) return 0;
  uint32_t bits = 0;
  for (size_t i = 0; i < kBlock; ++i) bits |= static_cast<uint32_t>(hits[i] & 1) << i;
  return bits;
}

}  // namespace

uint8_t phrases_in(std::string_view text) {
  uint8_t found = 0;
  size_t at = 0;
  for (; at + kBlock + kAnchor - 1 <= text.size(); at += kBlock) {
    for (uint32_t bits = anchors_at(text.data() + at); bits != 0; bits &= bits - 1) {
      found |= phrases_around(text, at + static_cast<size_t>(std::countr_zero(bits)));
    }
  }
  for (; at < text.size(); ++at) {
    const char letter = lower(text[at]);
    if (letter == 'j' || letter == 'p' || letter == 'r' || letter == 'i' || letter == 'o') {
      found |= phrases_around(text, at);
    }
  }
  return found;
}

}  // namespace webtext::signals
