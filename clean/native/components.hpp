// Connected components by union-find. parents[i] is another member of i's component, or i itself if i is the root. The
// root is the smallest member, so components don't depend on the order of pairs.
#pragma once

#include <cstdint>
#include <span>

namespace webtext::minhash {

inline uint32_t find_root(std::span<uint32_t> parents, uint32_t node) {
  while (parents[node] != node) {
    parents[node] = parents[parents[node]];
    node = parents[node];
  }
  return node;
}

inline void join(std::span<uint32_t> parents, uint32_t left, uint32_t right) {
  left = find_root(parents, left);
  right = find_root(parents, right);
  if (left < right) {
    parents[right] = left;
  } else {
    parents[left] = right;
  }
}

}  // namespace webtext::minhash
