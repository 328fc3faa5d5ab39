// Characters of UTF-8 text and their class in one of several Unicode versions: letter (with its case), number, white
// space, or anything else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace webtext {

using Byte = std::uint8_t;

inline const Byte* begin_of(std::string_view text) { return reinterpret_cast<const Byte*>(text.data()); }
inline const Byte* end_of(std::string_view text) { return begin_of(text) + text.size(); }
inline std::string_view view_of(const Byte* begin, std::size_t n_bytes) {
  return {reinterpret_cast<const char*>(begin), n_bytes};
}

// GPT-2's order of the 256 bytes, which are tokens 0 to 255: those with a visible Latin-1 character first.
const std::array<Byte, 256>& byte_order();

// The version that tiktoken 0.14 and HF tokenizers 0.23 use.
inline constexpr char kUnicodeVersion[] = "16.0.0";
inline constexpr std::array<std::string_view, 5> kUnicodeVersions = {"14.0.0", "15.0.0", "15.1.0", "16.0.0", "17.0.0"};

// The general categories that patterns use: kMark is M, kNumber is Nl and No, kSpace is White_Space.
// clang-format off
enum class Category : Byte {
  kRest, kUpper, kLower, kTitle, kModifier, kOtherLetter, kMark, kDigit, kNumber, kPunctuation, kSymbol, kSpace
};
// clang-format on
inline constexpr std::array<std::string_view, 12> kCategoryNames = {"-", "Lu", "Ll", "Lt", "Lm", "Lo",
                                                                    "M", "Nd", "N",  "P",  "S",  "space"};

inline constexpr std::uint32_t kCodes = 0x110000;

// The category of every code point; `version` is an index of kUnicodeVersions.
std::vector<Category> categories(std::size_t version);

// Returns the index of a version in kUnicodeVersions; throws std::invalid_argument if it is unknown.
std::size_t unicode_version_index(std::string_view name);

enum class CharClass : Byte { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

// A finer class that separates marks from other characters, and letters by case (title case is upper). The lowest two
// bits are the CharClass.
enum class CasedClass : Byte { kOther = 0, kUncased = 1, kNumber = 2, kSpace = 3, kMark = 4, kUpper = 5, kLower = 9 };

struct Character {
  CharClass kind;
  std::uint32_t n_bytes;
};

// Class of every code point: blocks of 128 code points, equal blocks stored once (about 30 KB).
class ClassTable {
 public:
  // Returns the table of a Unicode version, created on first use. Lock-free, so a fork is safe at any time.
  static const ClassTable& of(std::string_view unicode_version);

  CharClass operator[](std::uint32_t code) const { return to_class(cased(code)); }
  CasedClass cased(std::uint32_t code) const { return blocks_[block_of_[code >> kShift]][code & (kBlock - 1)]; }

 private:
  static constexpr std::uint32_t kShift = 7, kBlock = 1u << kShift;

  explicit ClassTable(std::size_t version);
  static CharClass to_class(CasedClass cased) { return static_cast<CharClass>(static_cast<Byte>(cased) & 3); }

  std::array<Byte, (kCodes >> kShift) + 1> block_of_;  // one extra block, for kNoCode
  std::vector<std::array<CasedClass, kBlock>> blocks_;
};

// A character's code point and its length.
struct CodePoint {
  std::uint32_t code, n_bytes;
};
inline constexpr std::uint32_t kNoCode = kCodes;  // for a byte that starts an invalid UTF-8 sequence; of class kOther

// The character at `at` (< end). A byte that doesn't start a valid UTF-8 sequence counts as one character, so any bytes
// can be encoded. Surrogates and overlong forms are invalid, as in Python's decoder.
inline CodePoint code_at(const Byte* at, const Byte* end) {
  const std::uint32_t first = *at;
  if (first < 0x80) return {first, 1};
  const auto tail = [&](std::ptrdiff_t index) { return static_cast<std::uint32_t>(at[index] ^ 0x80); };
  const std::ptrdiff_t left = end - at;
  if (first < 0xE0) {
    if (first >= 0xC2 && left >= 2 && tail(1) < 0x40) return {(first & 0x1F) << 6 | tail(1), 2};
  } else if (first < 0xF0) {
    if (left >= 3 && (tail(1) | tail(2)) < 0x40) {
      const std::uint32_t code = (first & 0x0F) << 12 | tail(1) << 6 | tail(2);
      if (code >= 0x800 && (code < 0xD800 || code >= 0xE000)) return {code, 3};
    }
  } else if (left >= 4 && (tail(1) | tail(2) | tail(3)) < 0x40) {
    const std::uint32_t code = (first & 0x0F) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
    if (code >= 0x10000 && code < kCodes) return {code, 4};
  }
  return {kNoCode, 1};
}

// The class and the length of the character at `at` (< end).
inline Character character_at(const ClassTable& classes, const Byte* at, const Byte* end) {
  const CodePoint point = code_at(at, end);
  return {classes[point.code], point.n_bytes};
}

}  // namespace webtext
