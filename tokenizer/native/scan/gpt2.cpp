#include "scan/runs.hpp"
#include "scan/scanner.hpp"

namespace webtext {
namespace {

class Gpt2Pieces {
 public:
  explicit Gpt2Pieces(const ClassTable& classes) : classes_(classes) {}

  // One past the last byte of the piece that starts at `begin` (< end).
  const Byte* operator()(const Byte* begin, const Byte* end) const {
    if (const int n_bytes = contraction<false>(begin, end)) return begin + n_bytes;
    const Character first = character_at(classes_, begin, end);
    const Byte* next = begin + first.n_bytes;
    if (first.kind != CharClass::kSpace) return run_end(classes_, first.kind, next, end);
    if (next == end) return end;
    const Character second = character_at(classes_, next, end);
    if (second.kind == CharClass::kSpace) return blanks_end<false, false>(classes_, begin, end);
    return *begin == ' ' ? run_end(classes_, second.kind, next + second.n_bytes, end) : next;
  }

 private:
  const ClassTable& classes_;
};

}  // namespace

std::size_t cut_gpt2(const ClassTable& classes, const Byte* begin, const Byte* end, std::uint32_t* ends,
                     std::size_t max) {
  return cut_by_pieces(Gpt2Pieces(classes), begin, end, ends, max);
}

}  // namespace webtext
