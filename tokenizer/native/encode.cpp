#include <stdexcept>

#include "encoder.hpp"
#include "shares.hpp"

namespace webtext {

Bpe::~Bpe() {
  for (auto& slot : idle_) delete slot.load();
}

template <class Token>
std::size_t Bpe::encode(const Byte* begin, const Byte* end, Token* out) const {
  std::size_t n_tokens = 0;
  with_encoder<Token>(
      [&](auto& encoder) { n_tokens = static_cast<std::size_t>(encoder.encode(begin, end, out) - out); });
  return n_tokens;
}

std::size_t Bpe::count(const Byte* begin, const Byte* end) const {
  std::size_t n_tokens = 0;
  with_encoder<std::uint32_t>([&](auto& encoder) {
    std::vector<std::uint32_t> tokens;
    const auto room_for = [&](std::size_t n_bytes) {
      if (tokens.size() < n_bytes + kSlack) tokens.resize(n_bytes + kSlack);
      return tokens.data();
    };
    std::uint32_t ends[1024];
    while (begin < end) {
      const std::size_t n_pieces = scanner_.cut(begin, end, ends, encoder.kWindow);
      const std::uint32_t n_bytes = ends[n_pieces - 1];
      room_for(n_bytes);
      n_tokens +=
          static_cast<std::size_t>(encoder.encode_window(begin, end, ends, n_pieces, tokens.data()) - tokens.data());
      begin += n_bytes;
    }
  });
  return n_tokens;
}

std::size_t Bpe::encode_pieces(const Byte* begin, const std::int64_t* piece_ends, std::size_t n_pieces,
                               std::uint32_t* out) const {
  std::uint32_t* room = out;
  with_encoder<std::uint32_t>([&](auto& encoder) {
    const Byte* end = begin + (n_pieces ? piece_ends[n_pieces - 1] : 0);
    std::int64_t start = 0;
    for (std::size_t index = 0; index < n_pieces;) {
      std::uint32_t ends[encoder.kWindow];
      std::size_t n_ends = 0;
      for (; index < n_pieces && n_ends < encoder.kWindow; ++index) {
        if (piece_ends[index] - start > kFarthestEnd) break;
        ends[n_ends++] = static_cast<std::uint32_t>(piece_ends[index] - start);
      }
      if (n_ends == 0) throw std::length_error("a piece of 4 GiB or more");
      room = encoder.encode_window(begin + start, end, ends, n_ends, room);
      start += ends[n_ends - 1];
    }
  });
  return static_cast<std::size_t>(room - out);
}

template std::size_t Bpe::encode(const Byte*, const Byte*, std::uint16_t*) const;
template std::size_t Bpe::encode(const Byte*, const Byte*, std::uint32_t*) const;

}  // namespace webtext
