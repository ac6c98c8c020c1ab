#include "host_ops/philox.h"

#include "host_ops/team.h"

#include <algorithm>
#include <array>
#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace torch_xla {

namespace {

constexpr int kRounds = 10;
constexpr size_t kWords = 4;  // of a block, which has one number of the counter
constexpr uint32_t kMultiplier[2] = {0xD2511F53, 0xCD9E8D57};
constexpr uint32_t kKeyStep[2] = {0x9E3779B9, 0xBB67AE85};

constexpr uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

// The upper half of the 128-bit counter is the key itself, as XLA fills it where the state has two
// words.
uint64_t upper_half(const uint64_t* state, uint64_t counter) {
  return state[0] + (counter < state[1] ? 1 : 0);
}

using Block = std::array<uint32_t, kWords>;

Block block_at(const uint64_t* state, uint64_t counter) {
  const uint64_t upper = upper_half(state, counter);
  Block x = {low(counter), high(counter), low(upper), high(upper)};
  uint32_t k0 = low(state[0]), k1 = high(state[0]);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier[0]} * x[0];
    const uint64_t p1 = uint64_t{kMultiplier[1]} * x[2];
    x = {high(p1) ^ x[1] ^ k0, low(p1), high(p0) ^ x[3] ^ k1, low(p0)};
    k0 += kKeyStep[0];
    k1 += kKeyStep[1];
  }
  return x;
}

void write_blocks(const uint64_t* state, size_t begin, size_t end, uint32_t* words) {
  for (size_t at = begin; at < end; at += kWords) {
    const Block block = block_at(state, state[1] + at / kWords);
    std::copy_n(block.begin(), std::min(kWords, end - at), words + at);
  }
}

#if defined(__x86_64__)
#define WITH_AVX2 [[gnu::target("avx2")]]

// Four blocks, word i of each in the lower halves of one vector's lanes: multiplications read no
// more of a lane, so what collects in the upper halves does no harm.
struct FourBlocks {
  static constexpr size_t kWords = 4 * torch_xla::kWords;
  __m256i x0, x1, x2, x3;

  WITH_AVX2 FourBlocks(const uint64_t* state, uint64_t first) {
    alignas(32) std::array<uint64_t, 4> counter, upper;
    for (size_t i = 0; i < counter.size(); ++i) {
      counter[i] = first + i;
      upper[i] = upper_half(state, counter[i]);
    }
    x0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(counter.data()));
    x2 = _mm256_load_si256(reinterpret_cast<const __m256i*>(upper.data()));
    x1 = _mm256_srli_epi64(x0, 32);
    x3 = _mm256_srli_epi64(x2, 32);
  }

  WITH_AVX2 void encipher(uint32_t k0, uint32_t k1) {
    const __m256i p0 = _mm256_mul_epu32(_mm256_set1_epi64x(kMultiplier[0]), x0);
    const __m256i p1 = _mm256_mul_epu32(_mm256_set1_epi64x(kMultiplier[1]), x2);
    const __m256i x1_with_key = _mm256_xor_si256(x1, _mm256_set1_epi64x(k0));
    const __m256i x3_with_key = _mm256_xor_si256(x3, _mm256_set1_epi64x(k1));
    x0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), x1_with_key);
    x2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), x3_with_key);
    x1 = p1;
    x3 = p0;
  }

  WITH_AVX2 void write(uint32_t* words) const {
    const __m256i first = _mm256_blend_epi32(x0, _mm256_slli_epi64(x1, 32), 0b10101010);
    const __m256i second = _mm256_blend_epi32(x2, _mm256_slli_epi64(x3, 32), 0b10101010);
    const __m256i even = _mm256_unpacklo_epi64(first, second);  // blocks 0 and 2
    const __m256i odd = _mm256_unpackhi_epi64(first, second);   // blocks 1 and 3
    auto* out = reinterpret_cast<__m256i*>(words);
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

// Two groups side by side: each waits for its own multiplications.
WITH_AVX2 void write_blocks_avx2(const uint64_t* state, size_t begin, size_t end, uint32_t* words) {
  constexpr size_t kStep = 2 * FourBlocks::kWords;
  size_t at = begin;
  for (; at + kStep <= end; at += kStep) {
    const uint64_t counter = state[1] + at / kWords;
    FourBlocks one(state, counter), other(state, counter + 4);
    uint32_t k0 = low(state[0]), k1 = high(state[0]);
    for (int round = 0; round < kRounds; ++round) {
      one.encipher(k0, k1);
      other.encipher(k0, k1);
      k0 += kKeyStep[0];
      k1 += kKeyStep[1];
    }
    one.write(words + at);
    other.write(words + at + FourBlocks::kWords);
  }
  write_blocks(state, at, end, words);
}

#undef WITH_AVX2
#endif

}  // namespace

void philox_words(const uint64_t* state, size_t begin, size_t end, uint32_t* words) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) {
    return write_blocks_avx2(state, begin, end, words);
  }
#endif
  write_blocks(state, begin, end, words);
}

uint64_t philox_counter(uint64_t counter, size_t words) {
  return counter + (words + kWords - 1) / kWords;
}

void Philox::draw(uint32_t* bits, size_t count) {
  constexpr int64_t kGrain = 1 << 14;  // words, a multiple of a block's
  const auto grains = static_cast<int64_t>((count + kGrain - 1) / kGrain);
  run_in_team(grains, 1, [&](int64_t begin, int64_t end) {
    const auto words_end = std::min(static_cast<size_t>(end * kGrain), count);
    philox_words(state_, static_cast<size_t>(begin * kGrain), words_end, bits);
  });
  state_[1] = philox_counter(state_[1], count);
}

void Philox::draw(uint64_t* bits, size_t count) {
  static_assert(std::endian::native == std::endian::little, "the lower word comes first");
  draw(reinterpret_cast<uint32_t*>(bits), 2 * count);
}

}  // namespace torch_xla
