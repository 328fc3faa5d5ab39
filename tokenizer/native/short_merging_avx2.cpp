#include <immintrin.h>

#include "short_merging.hpp"

namespace webtext {
namespace {

// One piece while it is merged. Tokens stay at the place of their first byte; `alive` has a bit for each that is left.
// A rank is that of the token there and the next one.
class Lane {
 public:
  void start(const NarrowRules& rules, ShortPiece* piece) {
    piece_ = piece;
    const std::size_t n_bytes = piece->n_bytes;
    n_vectors_ = static_cast<int>((n_bytes + 15) / 16) * 2;
    for (int index = 0; index < n_vectors_; ++index) {
      _mm_store_si128(reinterpret_cast<__m128i*>(ranks_) + index, _mm_set1_epi16(-1));
    }
    const Byte* bytes = piece->bytes;
    for (std::size_t at = 0; at < n_bytes; ++at) tokens_[at] = rules.byte_token(bytes[at]);
    for (std::size_t at = 0; at + 1 < n_bytes; ++at) ranks_[at] = rules.byte_rank(bytes[at], bytes[at + 1]);
    alive_ = ~std::uint64_t{0} >> (64 - n_bytes);
    asked_ = false;
  }

  // Merges the pair of lowest rank and calls for the rules of its two neighbours; false when there is none.
  bool step(const NarrowRules& rules) {
    if (asked_) take_answers();
    const auto load = [&](int index) { return _mm_load_si128(reinterpret_cast<const __m128i*>(ranks_) + index); };
    __m128i low = _mm_min_epu16(load(0), load(1));
    for (int index = 2; index < n_vectors_; ++index) low = _mm_min_epu16(low, load(index));
    const auto lowest = static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(low))) & 0xFFFF;
    if (lowest == NarrowRules::kNever) return false;
    const __m128i wanted = _mm_set1_epi16(static_cast<short>(lowest));
    std::uint64_t places = 0;
    for (int index = 0; index < n_vectors_; index += 2) {
      const __m128i equal =
          _mm_packs_epi16(_mm_cmpeq_epi16(load(index), wanted), _mm_cmpeq_epi16(load(index + 1), wanted));
      places |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm_movemask_epi8(equal))) << (8 * index);
    }
    at_ = static_cast<std::uint32_t>(_tzcnt_u64(places));
    const std::uint64_t behind = alive_ & (~std::uint64_t{1} << at_);
    const auto gone = static_cast<std::uint32_t>(_tzcnt_u64(behind));
    const std::uint64_t rest = _blsr_u64(behind), before = _bzhi_u64(alive_, at_);
    alive_ &= ~(std::uint64_t{1} << gone);
    tokens_[at_] = rules.token(static_cast<std::uint16_t>(lowest));
    ranks_[gone] = NarrowRules::kNever;
    // Both neighbours are asked for whether they are there or not: a wrong guess costs more.
    has_right_ = rest != 0;
    has_left_ = before != 0;
    right_ = static_cast<std::uint32_t>(_tzcnt_u64(rest)) & 63;
    left_ = static_cast<std::uint32_t>(63 - _lzcnt_u64(before)) & 63;
    gone_ = gone;
    right_slot_ = rules.slot_of(tokens_[at_], tokens_[right_]);
    left_slot_ = rules.slot_of(tokens_[left_], tokens_[at_]);
    _mm_prefetch(reinterpret_cast<const char*>(right_slot_), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(left_slot_), _MM_HINT_T0);
    asked_ = true;
    return true;
  }

  void finish() {
    std::size_t n_tokens = 0;
    for (std::uint64_t alive = alive_; alive; alive = _blsr_u64(alive)) {
      piece_->tokens[n_tokens++] = tokens_[_tzcnt_u64(alive)];
    }
    piece_->n_tokens = n_tokens;
  }

 private:
  void take_answers() {
    const std::uint16_t right = NarrowRules::rank_at(right_slot_, tokens_[at_], tokens_[right_]);
    const std::uint16_t left = NarrowRules::rank_at(left_slot_, tokens_[left_], tokens_[at_]);
    ranks_[at_] = has_right_ ? right : NarrowRules::kNever;
    ranks_[has_left_ ? left_ : gone_] = has_left_ ? left : NarrowRules::kNever;
  }

  alignas(16) std::uint16_t ranks_[64];
  std::uint16_t tokens_[64] = {};
  std::uint64_t alive_;
  ShortPiece* piece_;
  int n_vectors_;  // of eight ranks, an even number
  bool asked_, has_left_, has_right_;
  std::uint32_t at_, left_, right_, gone_;
  const NarrowRules::Slot *left_slot_, *right_slot_;
};

}  // namespace

// Some pieces at once, a step of each in turn, so that the memory answers one while the others go on.
void merge_short_avx2(const NarrowRules& rules, ShortPiece* pieces, std::size_t n) {
  constexpr std::size_t kLanes = 8;
  Lane lanes[kLanes];
  Lane* active[kLanes];
  std::size_t n_active = 0, next = 0;
  for (; n_active < kLanes && next < n; ++n_active) {
    active[n_active] = &lanes[n_active];
    active[n_active]->start(rules, &pieces[next++]);
  }
  while (n_active > 0) {
    for (std::size_t index = 0; index < n_active;) {
      Lane& lane = *active[index];
      if (lane.step(rules)) {
        ++index;
        continue;
      }
      lane.finish();
      if (next < n) {
        lane.start(rules, &pieces[next++]);
        ++index;
      } else {
        active[index] = active[--n_active];
      }
    }
  }
}

}  // namespace webtext
