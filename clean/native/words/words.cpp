// Folds text to words: ASCII sixteen bytes at a time, all other characters through the table made from key.py.
#include "words/words.hpp"

#include "fold_table.hpp"
#include "utf8.hpp"

namespace webtext::minhash {
namespace {

enum Kind : uint8_t { kBreak = 0, kWord = 1, kSingle = 2, kMark = 3, kDropped = 4 };

constexpr size_t kAsciiBlock = 16;
static_assert(kWordWeight == kTableWordWeight);
static_assert(std::ranges::min(kLetterWeights) >= kLeastWeight);
constexpr size_t kLongestFold = 256;  // a table text has one length byte, so no character folds to more

uint32_t entry_of(uint32_t code) {
  return kFoldEntries[kFoldIndex[code / kFoldBlock] * kFoldBlock + code % kFoldBlock];
}

size_t utf8_size(uint8_t lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

typedef uint8_t Bytes __attribute__((vector_size(kAsciiBlock)));

bool is_ascii(const char* block) {
  uint64_t halves[2];
  std::memcpy(halves, block, kAsciiBlock);
  return ((halves[0] | halves[1]) & 0x8080808080808080u) == 0;
}

// Lower-cases letters, keeps digits, and replaces everything else with a blank. 16 bytes at a time: 8 GB/s; a table of
// 256 entries or scalar compares: 0.5 GB/s, half of the time of a signature.
void fold_block(const char* block, char* out) {
  Bytes bytes;
  std::memcpy(&bytes, block, kAsciiBlock);
  const Bytes lower = bytes | 0x20;
  const Bytes letter = Bytes(lower - 'a' < 26), digit = Bytes(bytes - '0' < 10);
  const Bytes folded = (lower & letter) | (bytes & digit) | (~(letter | digit) & ' ');
  std::memcpy(out, &folded, kAsciiBlock);
}

char fold_byte(uint8_t byte) {
  const uint8_t lower = byte | 0x20;
  if (static_cast<uint8_t>(lower - 'a') < 26) return static_cast<char>(lower);
  return static_cast<uint8_t>(byte - '0') < 10 ? static_cast<char>(byte) : ' ';
}

}  // namespace

std::string_view Folder::fold(std::string_view text) {
  used_ = 0;
  after_single_ = has_letters_ = false;
  grow(text.size());
  for (size_t at = 0; at < text.size();) {
    // Ensures that the rest of the text fits: a byte of ASCII folds to one byte.
    if (buffer_.size() < used_ + (text.size() - at) + kLongestFold) grow(text.size() - at);
    const size_t ascii = fold_ascii(text.data() + at, text.size() - at);
    at += ascii;
    if (ascii == 0) at += fold_character(text.data() + at, text.size() - at);
  }
  return {buffer_.data(), used_};
}

// Folds the ASCII at the start of text and returns its length.
size_t Folder::fold_ascii(const char* text, size_t size) {
  if (static_cast<uint8_t>(text[0]) >= 0x80) return 0;
  if (after_single_) put(" ", 1, kBreak);
  size_t at = 0;
  char* out = buffer_.data() + used_;
  for (; at + kAsciiBlock <= size && is_ascii(text + at); at += kAsciiBlock) {
    fold_block(text + at, out + at);
  }
  for (; at < size && static_cast<uint8_t>(text[at]) < 0x80; ++at) out[at] = fold_byte(static_cast<uint8_t>(text[at]));
  used_ += at;
  return at;
}

size_t Folder::fold_character(const char* text, size_t size) {
  const auto [code, length] = decode(text, text + size);
  const uint32_t entry = entry_of(code);
  if (entry >= kFoldFirstText) {
    const uint8_t* record = kFoldTexts + (entry - kFoldFirstText);
    apply(record + 1, record[0]);
  } else if (entry == kBreak) {
    put(" ", 1, kBreak);
  } else if (entry != kDropped) {
    put(text, length, entry % kFoldScript);
  }
  return length;
}

// Appends the units of a table text, in which a byte before each single or mark states its kind.
void Folder::apply(const uint8_t* units, size_t size) {
  for (size_t at = 0; at < size;) {
    uint8_t kind = units[at] == ' ' ? kBreak : kWord;
    if (units[at] == kSingle || units[at] == kMark) kind = units[at++];
    const size_t length = utf8_size(units[at]);
    put(reinterpret_cast<const char*>(units + at), length, kind);
    at += length;
  }
}

void Folder::put(const char* bytes, size_t size, uint8_t kind) {
  if (kind == kMark) {
    if (used_ == 0 || buffer_[used_ - 1] == ' ') return;
  } else {
    if (kind == kSingle || after_single_) buffer_[used_++] = ' ';
    after_single_ = kind == kSingle;
    has_letters_ |= after_single_;
  }
  std::memcpy(buffer_.data() + used_, bytes, size);
  used_ += size;
}

// Makes room for one character of the table and `size` bytes of ASCII.
void Folder::grow(size_t size) {
  const size_t wanted = used_ + size + 2 * kLongestFold;
  if (buffer_.size() < wanted) buffer_.resize(std::max(wanted, buffer_.size() + buffer_.size() / 2));
}

uint32_t weight_of(std::string_view text) {
  const uint32_t entry = entry_of(decode(text.data(), text.data() + text.size()).code);
  return entry < kFoldFirstText && entry % kFoldScript == kSingle ? kLetterWeights[entry / kFoldScript] : kWordWeight;
}

void append_words(std::string_view folded, std::string& out) {
  const size_t begin = out.size();
  const auto in_word = [&] { return out.size() > begin && out.back() != ' '; };
  for (const char byte : folded) {
    if (byte != ' ' || in_word()) out += byte;
  }
  if (in_word()) out += ' ';
}

std::string key(std::string_view text) {
  Folder folder;
  std::string words;
  append_words(folder.fold(text), words);
  if (!words.empty()) words.pop_back();
  return words;
}

}  // namespace webtext::minhash
