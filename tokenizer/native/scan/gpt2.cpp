#include "scan/gpt2.hpp"

#include "base/simd.hpp"

namespace webtext {
namespace {

std::size_t cut_gpt2_scalar(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                            std::size_t max) {
  return cut_by_pieces(Gpt2Pieces(classes), begin, end, ends, max);
}

}  // namespace

Scanner::Cut gpt2_cut() {
#ifdef WEBTEXT_X86
  if (simd_level() >= SimdLevel::kAvx512) return &cut_gpt2_avx512;
  if (simd_level() >= SimdLevel::kAvx2) return &cut_gpt2_avx2;
#endif
  return &cut_gpt2_scalar;
}

const Byte* Gpt2Pieces::operator()(const Byte* begin, const Byte* end) const {
  if (*begin == '\'') {
    if (const int n_bytes = contraction(begin, end)) return begin + n_bytes;
  }
  const Character first = character_at(classes_, begin, end);
  if (first.kind != CharClass::kSpace) return run_end(begin + first.n_bytes, end, first.kind);
  const Byte* next = begin + first.n_bytes;
  if (next == end) return end;
  const Character second = character_at(classes_, next, end);
  if (second.kind == CharClass::kSpace) return blank_end(next, second.n_bytes, end);
  return *begin == ' ' ? run_end(next + second.n_bytes, end, second.kind) : next;
}

int Gpt2Pieces::contraction(const Byte* begin, const Byte* end) {
  const auto left = end - begin;
  if (left >= 2) {
    const Byte one = begin[1];
    if (one == 's' || one == 't' || one == 'm' || one == 'd') return 2;
    if (left >= 3) {
      const Byte two = begin[2];
      if ((two == 'e' && (one == 'r' || one == 'v')) || (one == 'l' && two == 'l')) return 3;
    }
  }
  return 0;
}

const Byte* Gpt2Pieces::run_end(const Byte* at, const Byte* end, CharClass kind) const {
  while (at < end) {
    const Character character = character_at(classes_, at, end);
    if (character.kind != kind) break;
    at += character.n_bytes;
  }
  return at;
}

// The end of a run of at least two blanks, the second of which is at `last`. The run's last blank belongs to the next
// piece.
const Byte* Gpt2Pieces::blank_end(const Byte* last, std::uint32_t n_bytes, const Byte* end) const {
  for (const Byte* after = last + n_bytes; after < end;) {
    const Character character = character_at(classes_, after, end);
    if (character.kind != CharClass::kSpace) return last;
    last = after;
    after += character.n_bytes;
  }
  return end;
}

HighBytes classify_high(const ClassTable& classes, const Byte* block, const Byte* end, std::uint64_t high,
                        std::uint32_t n_skipped) {
  HighBytes found;
  high &= ~std::uint64_t{0} << n_skipped;
  while (high) {
    const auto at = static_cast<std::uint32_t>(__builtin_ctzll(high));
    const Character character = character_at(classes, block + at, end);
    const std::uint32_t after = at + character.n_bytes;
    const std::uint64_t bits = ((std::uint64_t{1} << character.n_bytes) - 1) << at;
    if (character.kind == CharClass::kLetter) found.letter |= bits;
    if (character.kind == CharClass::kNumber) found.number |= bits;
    if (character.kind == CharClass::kSpace) {
      found.space |= bits;
      if (after <= 64)
        (character.n_bytes == 2 ? found.space_ends_2 : found.space_ends_3) |= std::uint64_t{1} << (after - 1);
    }
    if (after >= 64) {
      found.n_over = after - 64;
      found.over = character.kind;
      break;
    }
    high &= ~std::uint64_t{0} << after;
  }
  return found;
}

bool space_at(const ClassTable& classes, const Byte* at, const Byte* end) {
  return character_at(classes, at, end).kind == CharClass::kSpace;
}

std::size_t cut_gpt2_across(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t first,
                            std::uint32_t beyond, std::uint32_t* ends, std::size_t max) {
  const Gpt2Pieces pieces(classes);
  std::size_t n_pieces = 0;
  for (const Byte* at = begin + first; at < end && at < begin + beyond && n_pieces < max;) {
    at = pieces(at, end);
    if (at - begin > kFarthestEnd) {
      if (first == 0 && n_pieces == 0) throw std::length_error("a piece of 4 GiB or more");
      break;
    }
    ends[n_pieces++] = static_cast<std::uint32_t>(at - begin);
  }
  return n_pieces;
}

}  // namespace webtext
