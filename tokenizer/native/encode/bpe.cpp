#include "encode/bpe.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "encode/merging.hpp"

namespace webtext {
namespace {

constexpr std::uint32_t kNone = TokenTable::kNone;

std::string quoted(std::size_t id) { return "token " + std::to_string(id); }

}  // namespace

Bpe::Bpe(const Scanner& scanner, std::vector<std::string_view> tokens, const std::optional<std::vector<Merge>>& merges,
         bool whole_pieces, const std::vector<std::pair<std::uint32_t, std::string>>& special_tokens)
    : tokens_(tokens.size()),
      rules_(merges ? merges->size() : tokens.size()),
      by_rank_(!merges),
      is_narrow_(tokens.size() <= std::size_t{1} << 16),
      scanner_(scanner) {
  for (const std::string_view token : tokens) is_text_.push_back(!token.empty());
  for (const auto& [id, bytes] : special_tokens) {
    if (id >= tokens.size()) tokens.resize(id + 1);
    if (!tokens[id].empty()) throw std::invalid_argument("special " + quoted(id) + " has the id of another token");
    tokens[id] = bytes;
  }
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (const std::uint32_t twin = tokens_.add(tokens[id], id < is_text_.size() && is_text_[id]); twin != kNone) {
      throw std::invalid_argument(quoted(twin) + " and " + quoted(id) + " have the same bytes");
    }
  }
  tokens_.pad(16);  // decoding copies 16 bytes, whatever the token's length
  for (int byte = 0; byte < 256; ++byte) {
    const Byte bytes[] = {static_cast<Byte>(byte)};
    byte_tokens_[byte] = tokens_.find(view_of(bytes, 1));
    if (byte_tokens_[byte] == kNone) throw std::invalid_argument("no token for the byte " + std::to_string(byte));
  }
  merges ? rules_from_merges(*merges) : rules_from_ranks();
  is_narrow_ ? std::get<0>(short_).assign(rules_, byte_tokens_) : std::get<1>(short_).assign(rules_, byte_tokens_);
  whole_pieces_ = whole_pieces && !(by_rank_ && stuck_.empty()) && some_unreachable();
}

void Bpe::rules_from_merges(const std::vector<Merge>& merges) {
  std::string joined;
  for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merges[rank];
    const auto wrong = [&](const char* what) { return std::invalid_argument("merge " + std::to_string(rank) + what); };
    const std::string_view bytes[] = {text_bytes_of(left), text_bytes_of(right)};
    if (bytes[0].empty() || bytes[1].empty()) throw wrong(" names an unused or special id");
    const std::uint32_t token = tokens_.find(joined.assign(bytes[0]).append(bytes[1]));
    if (token == kNone) throw wrong(" produces bytes that are not a token");
    rules_.add(left, right, {rank, token}, joined);
  }
}

// Any two tokens whose joined bytes are a token may merge, but each token needs only the rule for the pair that merging
// its own bytes ends with. In a text, no merge has crossed the ends of a token when it is created, and those inside had
// the same order as in its bytes alone: the lowest rank first, the leftmost on ties, whatever lies outside. So it is
// always created from that pair, and a rule that never applies changes nothing. Smaller ids merge first, so the rules
// that exist when it is a token's turn find the pair. If they don't (it is created via larger ids, or never), it gets a
// rule for every pair. Without this, GPT-2's rank file has 108,299 rules instead of 50,000.
void Bpe::rules_from_ranks() {
  Merger merger;
  for (std::uint32_t id = 0; id < is_text_.size(); ++id) {
    const std::string_view token = text_bytes_of(id);
    if (token.size() < 2) continue;
    if (const auto& parts = merger(rules_, byte_tokens_, token); parts.size() == 2) {
      rules_.add(parts[0], parts[1], {id, id}, token);
      continue;
    }
    stuck_.push_back(id);
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const std::uint32_t left = tokens_.find(token.substr(0, cut));
      const std::uint32_t right = left == kNone ? kNone : tokens_.find(token.substr(cut));
      if (right != kNone) rules_.add(left, right, {id, id}, token);
    }
  }
}

// Whether exactly one merge produces each token, and comes after the merges that produce its parts, as in a trained
// vocabulary. For ranks, the equivalent condition: every token can be built using only smaller ids.
bool Bpe::find_orderly() const {
  if (by_rank_) return stuck_.empty();
  std::vector<std::uint32_t> ranks(is_text_.size(), Rule::kNever);
  bool is_orderly = true;
  rules_.each([&](std::uint32_t, std::uint32_t, Rule rule) {
    is_orderly = is_orderly && ranks[rule.token] == Rule::kNever;
    ranks[rule.token] = rule.rank;
  });
  const auto rank_of = [&](std::uint32_t token) { return tokens_.n_bytes(token) == 1 ? 0 : ranks[token]; };
  rules_.each([&](std::uint32_t left, std::uint32_t right, Rule rule) {
    is_orderly = is_orderly && rank_of(left) <= rule.rank && rank_of(right) <= rule.rank;
  });
  return is_orderly;
}

bool Bpe::is_orderly() const {
  if (is_orderly_ < 0) is_orderly_ = find_orderly();  // concurrent threads compute the same value
  return is_orderly_ > 0;
}

std::vector<Merge> Bpe::merges_by_rank() const {
  std::vector<Merge> by_id(is_text_.size(), {kNone, kNone});
  rules_.each([&](std::uint32_t left, std::uint32_t right, Rule rule) { by_id[rule.token] = {left, right}; });
  for (const std::uint32_t id : stuck_) by_id[id] = {kNone, kNone};
  std::erase(by_id, Merge{kNone, kNone});
  return by_id;
}

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void throw_unknown(std::uint64_t id, std::size_t place) {
  throw std::out_of_range("unknown token id " + std::to_string(static_cast<std::int64_t>(id)) + " at position " +
                          std::to_string(place));
}

[[noreturn, gnu::cold, gnu::noinline]] void throw_changed() {
  throw std::invalid_argument("the ids changed while they were decoded");
}

}  // namespace

// Calls use(bytes, n_bytes) for every id. Each id is read only once, because another thread could change it.
template <class Id, class Use>
[[gnu::always_inline]] inline void Bpe::each_token(const Id* ids, std::size_t n_ids, const Use& use) const {
  const Byte* const bytes = tokens_.data();  // in registers: the compiler must assume that writes can change *this
  const std::uint64_t *const starts = tokens_.starts(), n_tokens = tokens_.size();
  for (std::size_t place = 0; place < n_ids; ++place) {
    const auto id = static_cast<std::uint64_t>(__atomic_load_n(ids + place, __ATOMIC_RELAXED));
    if (id >= n_tokens) throw_unknown(id, place);  // a negative id is too large as well
    const std::uint64_t start = starts[id], n_bytes = starts[id + 1] - start;
    if (n_bytes == 0) throw_unknown(id, place);
    use(bytes + start, n_bytes);
  }
}

template <class Id>
std::size_t Bpe::decoded_size(const Id* ids, std::size_t n_ids) const {
  std::size_t total = 0;
  each_token(ids, n_ids, [&](const Byte*, std::size_t n_bytes) { total += n_bytes; });
  return total;
}

template <class Id>
void Bpe::decode(const Id* ids, std::size_t n_ids, char* out, std::size_t n_out) const {
  constexpr std::size_t kCopied = 16;  // for any token up to this length, if there is room
  each_token(ids, n_ids, [&](const Byte* bytes, std::size_t n_bytes) {
    if (n_bytes <= kCopied && kCopied <= n_out) [[likely]] {
      std::memcpy(out, bytes, kCopied);
    } else {
      if (n_bytes > n_out) throw_changed();
      std::memcpy(out, bytes, n_bytes);
    }
    out += n_bytes;
    n_out -= n_bytes;
  });
  if (n_out) throw_changed();
}

template std::size_t Bpe::decoded_size(const std::uint16_t*, std::size_t) const;
template std::size_t Bpe::decoded_size(const std::uint32_t*, std::size_t) const;
template std::size_t Bpe::decoded_size(const std::int64_t*, std::size_t) const;
template void Bpe::decode(const std::uint16_t*, std::size_t, char*, std::size_t) const;
template void Bpe::decode(const std::uint32_t*, std::size_t, char*, std::size_t) const;
template void Bpe::decode(const std::int64_t*, std::size_t, char*, std::size_t) const;

}  // namespace webtext
