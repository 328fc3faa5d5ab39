// A table of known pieces in a file: written once and mapped by every process, so that the first text is encoded nearly
// as fast as later ones.
//
//   0  "webtext pieces 1"
//  16  fingerprint of the tokenizer, checksum of everything after it: two uint64, little-endian
//  32  bytes per id (2 or 4), buckets, words of the arena, 0: four uint64, little-endian
//  64  entries, two per bucket, then the arena: as they are in memory
#pragma once

#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "encode/known_pieces.hpp"

namespace webtext {

struct PieceFileHead {
  static constexpr char kMagic[17] = "webtext pieces 1";

  char magic[16];
  std::uint64_t fingerprint, checksum, id_size, n_buckets, n_arena, zero;
};
static_assert(sizeof(PieceFileHead) == 64);

inline std::uint64_t checksum(const Byte* bytes, std::size_t n_bytes) {
  std::uint64_t sums[4] = {n_bytes, 1, 2, 3};  // four independent chains
  std::uint64_t words[4];
  for (; n_bytes >= sizeof words; bytes += sizeof words, n_bytes -= sizeof words) {
    std::memcpy(words, bytes, sizeof words);
    for (int lane = 0; lane < 4; ++lane) sums[lane] = kStoredHash.mix(sums[lane], words[lane]);
  }
  return kStoredHash.mix(kStoredHash.mix(sums[0], sums[1]) ^ kStoredHash.bytes(bytes, n_bytes),
                         kStoredHash.mix(sums[2], sums[3]));
}

// The checksum of a complete file, without the header up to the checksum itself.
inline std::uint64_t piece_file_checksum(const Byte* file, std::size_t n_bytes) {
  constexpr std::size_t kSummed = offsetof(PieceFileHead, id_size);
  return checksum(file + kSummed, n_bytes - kSummed);
}

template <class Id>
std::string piece_file(const KnownPieces<Id>& pieces, std::uint64_t fingerprint) {
  const std::size_t n_entry_bytes = 2 * pieces.n_buckets() * sizeof(KnownPiece<Id>);
  std::string file(sizeof(PieceFileHead), '\0');
  file.append(reinterpret_cast<const char*>(pieces.view().bucket(0)), n_entry_bytes);
  file.append(reinterpret_cast<const char*>(pieces.arena().data()), 4 * pieces.arena().size());
  PieceFileHead head{{}, fingerprint, 0, sizeof(Id), pieces.n_buckets(), pieces.arena().size(), 0};
  std::memcpy(head.magic, PieceFileHead::kMagic, sizeof head.magic);
  std::memcpy(file.data(), &head, sizeof head);
  head.checksum = piece_file_checksum(reinterpret_cast<const Byte*>(file.data()), file.size());
  std::memcpy(file.data(), &head, sizeof head);
  return file;
}

// Returns a view of the table in a file's bytes, which must be aligned like allocated memory and must outlive the view.
// Throws std::invalid_argument if the file is damaged or was made for another tokenizer.
template <class Id>
KnownPiecesView<Id> pieces_in(const Byte* file, std::size_t n_bytes, std::uint64_t fingerprint) {
  PieceFileHead head;
  if (n_bytes < sizeof head) throw std::invalid_argument("it is cut short");
  std::memcpy(&head, file, sizeof head);
  if (std::memcmp(head.magic, PieceFileHead::kMagic, sizeof head.magic))
    throw std::invalid_argument("it is not a table of pieces");
  if (head.fingerprint != fingerprint || head.id_size != sizeof(Id)) {
    throw std::invalid_argument("it was made for another tokenizer");
  }
  const std::size_t n_rest = n_bytes - sizeof head;
  const bool fits = head.n_buckets && !(head.n_buckets & (head.n_buckets - 1)) && head.n_buckets <= n_rest / 64 &&
                    head.n_arena <= n_rest / 4 && 64 * head.n_buckets + 4 * head.n_arena == n_rest;
  if (!fits || head.checksum != piece_file_checksum(file, n_bytes)) throw std::invalid_argument("it is damaged");
  const auto* entries = reinterpret_cast<const KnownPiece<Id>*>(file + sizeof head);
  return {entries, head.n_buckets, reinterpret_cast<const std::uint32_t*>(entries + 2 * head.n_buckets), head.n_arena,
          kStoredHash};
}

}  // namespace webtext
