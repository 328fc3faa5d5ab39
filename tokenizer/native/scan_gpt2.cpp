//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// Alternatives are tried in this order at each place; no piece crosses a character class, except over one leading
// space.
#include "scan_gpt2.hpp"

namespace webtext {
namespace {

class Gpt2Pieces {
 public:
  explicit Gpt2Pieces(const ClassTable& classes) : classes_(classes) {}

  // One past the last byte of the piece that starts at `begin` (< end).
  const Byte* operator()(const Byte* begin, const Byte* end) const {
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

 private:
  static int contraction(const Byte* begin, const Byte* end) {
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

  const Byte* run_end(const Byte* at, const Byte* end, CharClass kind) const {
    while (at < end) {
      const Character character = character_at(classes_, at, end);
      if (character.kind != kind) break;
      at += character.n_bytes;
    }
    return at;
  }

  // The end of a run of at least two blanks whose second is at `last`: the run gives its last blank to what follows.
  const Byte* blank_end(const Byte* last, std::uint32_t n_bytes, const Byte* end) const {
    for (const Byte* after = last + n_bytes; after < end;) {
      const Character character = character_at(classes_, after, end);
      if (character.kind != CharClass::kSpace) return last;
      last = after;
      after += character.n_bytes;
    }
    return end;
  }

  const ClassTable& classes_;
};

}  // namespace

std::size_t cut_gpt2(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                     std::size_t max) {
  return cut_by_pieces(Gpt2Pieces(classes), begin, end, ends, max);
}

}  // namespace webtext
