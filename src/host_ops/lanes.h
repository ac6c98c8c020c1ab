// Sixteen numbers at a time, for kernels of our own: as many instructions as the processor needs
// for them. Stateless.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <cstring>

// How lanes are passed to functions depends on the processor: none is called, all are inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define TORCH_XLA_INLINE inline __attribute__((always_inline))

namespace torch_xla {

constexpr int64_t kLanes = 16;

using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;

TORCH_XLA_INLINE Lanes load_lanes(const float* numbers) {
  Lanes lanes;
  std::memcpy(&lanes, numbers, sizeof(lanes));
  return lanes;
}

TORCH_XLA_INLINE Lanes load_lanes(const c10::BFloat16* numbers) {
  using Halves [[gnu::vector_size(kLanes * sizeof(uint16_t))]] = uint16_t;
  using Words [[gnu::vector_size(kLanes * sizeof(uint32_t))]] = uint32_t;
  Halves halves;
  std::memcpy(&halves, numbers, sizeof(halves));
  const Words words = __builtin_convertvector(halves, Words) << 16;
  Lanes lanes;
  std::memcpy(&lanes, &words, sizeof(lanes));
  return lanes;
}

TORCH_XLA_INLINE void store_lanes(float* numbers, Lanes lanes) {
  std::memcpy(numbers, &lanes, sizeof(lanes));
}

TORCH_XLA_INLINE void store_lanes(c10::BFloat16* numbers, Lanes lanes) {
  for (int64_t i = 0; i < kLanes; ++i) {
    numbers[i] = lanes[i];
  }
}

TORCH_XLA_INLINE float sum_of_lanes(Lanes lanes) {
  float sum = 0;
  for (int64_t i = 0; i < kLanes; ++i) {
    sum += lanes[i];
  }
  return sum;
}

#if defined(__x86_64__)
namespace detail {

template <typename Body>
[[gnu::target("avx512f,avx512bw,avx512vl,fma")]] void with_avx512(Body& body) {
  body();
}

template <typename Body>
[[gnu::target("avx2,fma")]] void with_avx2(Body& body) {
  body();
}

}  // namespace detail

// Runs `body`, which must be TORCH_XLA_INLINE as all that it calls, with the widest vectors.
template <typename Body>
void with_widest_lanes(Body body) {
  static const bool avx512 =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx512) {
    detail::with_avx512(body);
  } else if (avx2) {
    detail::with_avx2(body);
  } else {
    body();
  }
}
#else
template <typename Body>
void with_widest_lanes(Body body) {
  body();
}
#endif

}  // namespace torch_xla
