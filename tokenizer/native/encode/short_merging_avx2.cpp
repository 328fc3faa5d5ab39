#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "encode/short_merging.hpp"

namespace webtext {
namespace {

// Vectors of ranks: sixteen 16-bit numbers in two, or sixteen 32-bit numbers in two of twice the size.
struct Narrow {
  static __m128i load(const std::uint16_t* ranks, int index) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(ranks) + index);
  }
  template <int Vectors>
  static std::uint32_t lowest(const std::uint16_t* ranks) {
    __m128i low = _mm_min_epu16(load(ranks, 0), load(ranks, 1));
    for (int index = 2; index < Vectors; ++index) low = _mm_min_epu16(low, load(ranks, index));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(low))) & 0xFFFF;
  }
  // Bits of the 16 places from vector `index` on whose rank is `wanted`.
  static std::uint32_t places(const std::uint16_t* ranks, int index, std::uint32_t wanted) {
    const __m128i all = _mm_set1_epi16(static_cast<short>(wanted));
    return static_cast<std::uint32_t>(_mm_movemask_epi8(
        _mm_packs_epi16(_mm_cmpeq_epi16(load(ranks, index), all), _mm_cmpeq_epi16(load(ranks, index + 1), all))));
  }
};

struct Wide {
  static __m256i load(const std::uint32_t* ranks, int index) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(ranks) + index);
  }
  template <int Vectors>
  static std::uint32_t lowest(const std::uint32_t* ranks) {
    __m256i low = _mm256_min_epu32(load(ranks, 0), load(ranks, 1));
    for (int index = 2; index < Vectors; ++index) low = _mm256_min_epu32(low, load(ranks, index));
    __m128i least = _mm_min_epu32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    least = _mm_min_epu32(least, _mm_shuffle_epi32(least, 0b01001110));
    least = _mm_min_epu32(least, _mm_shuffle_epi32(least, 0b10110001));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(least));
  }
  static std::uint32_t places(const std::uint32_t* ranks, int index, std::uint32_t wanted) {
    const __m256i all = _mm256_set1_epi32(static_cast<int>(wanted));
    const auto bits = [&](int at) {
      return static_cast<std::uint32_t>(
          _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(load(ranks, at), all))));
    };
    return bits(index) | bits(index + 1) << 8;
  }
};

// The state of one piece of at most 8 * Vectors bytes during merging. A token stays at the position of its first byte;
// `alive_` has a bit for each remaining token. ranks_[i] is the rank of the token at i and the next one. There are
// hardly any branches, because a misprediction costs more than all other work of a step.
template <class Id, int Vectors>
class Lane {
 public:
  static constexpr std::size_t kPlaces = 8 * Vectors;
  static constexpr Id kNever = ShortRules<Id>::kNever;
  using Ranks = std::conditional_t<sizeof(Id) == 2, Narrow, Wide>;

  void start(const ShortRules<Id>& rules, ShortPiece<Id>* piece) {
    piece_ = piece;
    const std::size_t n_bytes = piece->n_bytes;
    const Byte* bytes = piece->bytes;
    Byte padded[kPlaces];
    if constexpr (Vectors == 2) {
      bytes = piece->padded;
    } else {
      std::memset(padded, 0, sizeof padded);
      std::memcpy(padded, bytes, n_bytes);
      bytes = padded;
    }
    for (std::size_t at = 0; at < kPlaces; ++at) tokens_[at] = rules.byte_token(bytes[at]);
    ranks_[kPlaces - 1] = kNever;
    for (std::size_t at = 0; at + 1 < kPlaces; ++at) ranks_[at] = rules.byte_rank(bytes[at], bytes[at + 1]);
    for (std::size_t at = 0; at < kPlaces; ++at) {  // after the last pair nothing merges
      ranks_[at] = static_cast<Id>(ranks_[at] | (0 - static_cast<Id>(at + 1 >= n_bytes)));
    }
    alive_ = ~std::uint64_t{0} >> (64 - n_bytes);
    // Initial slots for the first `take_answers`, which then changes nothing.
    at_ = left_ = right_ = kPlaces - 1;
    no_left_ = no_right_ = kNever;
    left_slot_ = right_slot_ = rules.slot_of(0, 0);
  }

  // Stores the ranks that the last step prefetched.
  void take_answers() {
    const std::uint32_t right = right_slot_->rank_of(tokens_[at_], tokens_[right_]);
    const std::uint32_t left = left_slot_->rank_of(tokens_[left_], tokens_[at_]);
    ranks_[at_] = static_cast<Id>(right | no_right_);
    ranks_[left_] = static_cast<Id>(left | no_left_);
  }

  // Merges the pair of lowest rank and prefetches the rules of its two neighbours; returns false if no pair is left.
  bool step(const ShortRules<Id>& rules) {
    const std::uint32_t lowest = Ranks::template lowest<Vectors>(ranks_);
    if (lowest == kNever) return false;
    std::uint64_t places = 0;
    for (int index = 0; index < Vectors; index += 2) {
      places |= static_cast<std::uint64_t>(Ranks::places(ranks_, index, lowest)) << (8 * index);
    }
    at_ = static_cast<std::uint32_t>(_tzcnt_u64(places));
    const std::uint64_t behind = alive_ & (~std::uint64_t{1} << at_);
    const std::uint64_t rest = _blsr_u64(behind), before = _bzhi_u64(alive_, at_);
    const auto gone = static_cast<std::uint32_t>(_tzcnt_u64(behind));
    alive_ &= rest | ~behind;
    tokens_[at_] = rules.token(lowest);
    ranks_[gone] = kNever;
    // For a missing neighbour, kNever is written to a position that has no rank anyway.
    right_ = static_cast<std::uint32_t>(_tzcnt_u64(rest | std::uint64_t{1} << 63)) % kPlaces;
    left_ = static_cast<std::uint32_t>(before ? 63 - _lzcnt_u64(before) : gone);
    no_right_ = 0 - static_cast<std::uint32_t>(rest == 0);
    no_left_ = 0 - static_cast<std::uint32_t>(before == 0);
    right_slot_ = rules.slot_of(tokens_[at_], tokens_[right_]);
    left_slot_ = rules.slot_of(tokens_[left_], tokens_[at_]);
    _mm_prefetch(reinterpret_cast<const char*>(right_slot_), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(left_slot_), _MM_HINT_T0);
    return true;
  }

  void finish() {
    constexpr std::size_t kAtOnce = 4;
    const auto n_tokens = static_cast<std::size_t>(_mm_popcnt_u64(alive_));
    std::uint64_t alive = alive_;
    for (std::size_t written = 0; written < n_tokens; written += kAtOnce) {
      for (std::size_t index = 0; index < kAtOnce; ++index, alive = _blsr_u64(alive)) {
        piece_->tokens[written + index] = tokens_[_tzcnt_u64(alive) % kPlaces];
      }
    }
    piece_->n_tokens = n_tokens;
  }

 private:
  alignas(32) Id ranks_[kPlaces];
  Id tokens_[kPlaces];
  std::uint64_t alive_;
  ShortPiece<Id>* piece_;
  std::uint32_t at_, left_, right_;
  std::uint32_t no_left_, no_right_;  // kNever if the neighbour is missing, else 0
  const RuleSlot<Id>*left_slot_, *right_slot_;
};

// Merges several pieces at once, a step of each in turn, so that memory accesses overlap with work on other pieces.
template <int Vectors, class Id>
void merge(const ShortRules<Id>& rules, ShortPiece<Id>* const* pieces, std::size_t n) {
  constexpr std::size_t kLanes = 16;  // with 8, a first text took 3 % longer
  Lane<Id, Vectors> lanes[kLanes];
  Lane<Id, Vectors>* active[kLanes];
  std::size_t n_active = 0, next = 0;
  for (; n_active < kLanes && next < n; ++n_active) {
    active[n_active] = &lanes[n_active];
    active[n_active]->start(rules, pieces[next++]);
  }
  while (n_active > 0) {
    // Separate from the steps, so that written ranks have reached the cache when they are read as vectors.
    for (std::size_t index = 0; index < n_active; ++index) active[index]->take_answers();
    for (std::size_t index = 0; index < n_active;) {
      Lane<Id, Vectors>& lane = *active[index];
      if (lane.step(rules)) {
        ++index;
        continue;
      }
      lane.finish();
      if (next < n) {
        lane.start(rules, pieces[next++]);
        ++index;
      } else {
        active[index] = active[--n_active];
      }
    }
  }
}

}  // namespace

// Sorts pieces by length, so that all lanes take the same number of vectors.
template <class Id>
void merge_short_avx2(const ShortRules<Id>& rules, ShortPiece<Id>* pieces, std::size_t n) {
  constexpr std::size_t kAtOnce = 64;
  for (std::size_t first = 0; first < n; first += kAtOnce) {
    ShortPiece<Id>* sorted[3][kAtOnce];
    std::size_t counts[3] = {};
    for (std::size_t index = first; index < n && index < first + kAtOnce; ++index) {
      const std::size_t length = pieces[index].n_bytes;
      const std::size_t kind = (length > 15) + (length > 32);  // `padded` has 16 bytes for pieces of up to 15
      sorted[kind][counts[kind]++] = &pieces[index];
    }
    merge<2>(rules, sorted[0], counts[0]);
    merge<4>(rules, sorted[1], counts[1]);
    merge<8>(rules, sorted[2], counts[2]);
  }
}

template void merge_short_avx2(const ShortRules<std::uint16_t>&, ShortPiece<std::uint16_t>*, std::size_t);
template void merge_short_avx2(const ShortRules<std::uint32_t>&, ShortPiece<std::uint32_t>*, std::size_t);

}  // namespace webtext
