#include "encode/piece_file.hpp"

#include "encode/encoder.hpp"

namespace webtext {

template <class Id>
std::string Bpe::piece_file_of(const std::vector<std::string_view>& pieces, std::string_view salt) const {
  std::size_t n_buckets = 1024;
  while (n_buckets < pieces.size()) n_buckets *= 2;
  KnownPieces<Id> known(n_buckets, kStoredHash);
  const Lease lease(*this);
  for (const std::string_view piece : pieces) {
    const Byte* bytes = begin_of(piece);
    if (piece.empty() || piece.size() > kMaxKept) continue;
    const auto& tokens = merge_bytes(*lease, piece);
    known.insert(PieceKey::of(bytes, piece.size()), bytes, piece.size(), tokens.data(), tokens.size(), true);
  }
  return webtext::piece_file(known, fingerprint(salt));
}

std::string Bpe::piece_file(const std::vector<std::string_view>& pieces, std::string_view salt) const {
  return is_narrow_ ? piece_file_of<std::uint16_t>(pieces, salt) : piece_file_of<std::uint32_t>(pieces, salt);
}

std::vector<std::string_view> Bpe::own_pieces() const {
  std::vector<std::string_view> pieces;
  for (std::uint32_t id = 0; id < is_text_.size(); ++id) {
    const std::string_view token = text_bytes_of(id);
    std::uint32_t ends[2];
    if (!token.empty() && scanner_.cut(begin_of(token), end_of(token), ends, 2) == 1) pieces.push_back(token);
  }
  return pieces;
}

// Checks that the tokens of every piece have its bytes: then decoding restores the text, whatever the file contains.
template <class Id>
KnownPiecesView<Id> Bpe::checked(const KnownPiecesView<Id>& pieces) const {
  using Entry = KnownPiece<Id>;
  pieces.each([&](const Entry& entry) {
    std::uint32_t ids[Entry::kIds];
    std::copy_n(entry.ids, Entry::kIds, ids);
    if (entry.key.is_odd()) throw std::invalid_argument("it is damaged");
    typename KnownPiecesView<Id>::Stored found{{ids, entry.n}, nullptr, 0, 0};
    if (entry.n > Entry::kIds) found = pieces.stored(entry);
    if (!entry.key.is_long()) found.bytes = entry.key.padded(), found.n_bytes = entry.key.n_bytes();
    std::size_t at = 0;
    for (std::size_t index = 0; index < found.tokens.n; ++index) {
      const std::string_view token = text_bytes_of(found.tokens.ids[index]);
      const bool fits = !token.empty() && token.size() <= found.n_bytes - at;
      if (!fits || std::memcmp(token.data(), found.bytes + at, token.size()))
        throw std::invalid_argument("it is damaged");
      at += token.size();
    }
    if (at == 0 || at != found.n_bytes) throw std::invalid_argument("it is damaged");
  });
  return pieces;
}

void Bpe::use_piece_file(const Byte* file, std::size_t n_bytes, std::string_view salt, std::shared_ptr<void> owner) {
  if (is_narrow_) {
    std::get<0>(pieces_) = checked(pieces_in<std::uint16_t>(file, n_bytes, fingerprint(salt)));
  } else {
    std::get<1>(pieces_) = checked(pieces_in<std::uint32_t>(file, n_bytes, fingerprint(salt)));
  }
  file_ = std::move(owner);
}

// A hash of everything that affects the tokens of a piece.
std::uint64_t Bpe::fingerprint(std::string_view salt) const {
  std::uint64_t hash = kStoredHash.bytes(begin_of(salt), salt.size());
  hash = kStoredHash.mix(hash, whole_pieces_);
  for (std::uint32_t id = 0; id < is_text_.size(); ++id) {
    const std::string_view token = text_bytes_of(id);
    hash = kStoredHash.mix(hash, kStoredHash.bytes(begin_of(token), token.size()));
  }
  std::uint64_t rules = 0;  // a sum, so that the order of the rules doesn't matter
  rules_.each([&](std::uint32_t left, std::uint32_t right, Rule rule) {
    rules += kStoredHash.mix(static_cast<std::uint64_t>(left) << 32 | right,
                             static_cast<std::uint64_t>(rule.rank) << 32 | rule.token);
  });
  return kStoredHash.mix(hash, rules);
}

}  // namespace webtext
