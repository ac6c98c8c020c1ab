#include "host_ops/philox.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

namespace torch_xla {

namespace {

using Block = std::array<uint32_t, 4>;

constexpr int kRounds = 10;
constexpr uint32_t kMultiplier[2] = {0xD2511F53, 0xCD9E8D57};
constexpr uint32_t kKeyStep[2] = {0x9E3779B9, 0xBB67AE85};

uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

// Four words from the 128-bit counter whose upper half is the key itself, as XLA fills it where
// the state has two words.
Block block_at(uint64_t key, uint64_t counter, uint64_t upper) {
  Block x = {low(counter), high(counter), low(upper), high(upper)};
  uint32_t k0 = low(key), k1 = high(key);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier[0]} * x[0];
    const uint64_t p1 = uint64_t{kMultiplier[1]} * x[2];
    x = {high(p1) ^ x[1] ^ k0, low(p1), high(p0) ^ x[3] ^ k1, low(p0)};
    k0 += kKeyStep[0];
    k1 += kKeyStep[1];
  }
  return x;
}

constexpr int64_t kGrain = 4096;

// Calls `store(i, block)` with the blocks from the state on, and moves the state past them.
template <typename Store>
void draw_blocks(uint64_t* state, int64_t count, Store store) {
  const uint64_t key = state[0], first = state[1];
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t counter = first + static_cast<uint64_t>(i);
      store(i, block_at(key, counter, key + (counter < first ? 1 : 0)));
    }
  });
  state[1] = first + static_cast<uint64_t>(count);
}

}  // namespace

void Philox::draw(uint32_t* bits, size_t count) {
  draw_blocks(state_, static_cast<int64_t>((count + 3) / 4), [=](int64_t i, const Block& block) {
    const size_t at = static_cast<size_t>(i) * 4;
    std::copy_n(block.begin(), std::min<size_t>(4, count - at), bits + at);
  });
}

void Philox::draw(uint64_t* bits, size_t count) {
  draw_blocks(state_, static_cast<int64_t>((count + 1) / 2), [=](int64_t i, const Block& block) {
    const size_t at = static_cast<size_t>(i) * 2;
    bits[at] = block[0] | uint64_t{block[1]} << 32;
    if (at + 1 < count) {
      bits[at + 1] = block[2] | uint64_t{block[3]} << 32;
    }
  });
}

}  // namespace torch_xla
