// Several numbers at a time, for kernels of our own: vectors as wide as the processor's registers.
// Wider ones would be right, too, but compilers take comparisons and choices of them apart, number
// by number. Stateless.
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

namespace detail {

template <int64_t kCount>
struct LanesOf {
  using Floats [[gnu::vector_size(kCount * sizeof(float))]] = float;
  using Halves [[gnu::vector_size(kCount * sizeof(uint16_t))]] = uint16_t;
};

}  // namespace detail

// `Lanes` names one of these in all that follows.
using NarrowLanes = detail::LanesOf<4>::Floats;
using MiddleLanes = detail::LanesOf<8>::Floats;
using WideLanes = detail::LanesOf<16>::Floats;

template <typename Lanes>
inline constexpr int64_t kLanes = sizeof(Lanes) / sizeof(float);
inline constexpr int64_t kMostLanes = kLanes<WideLanes>;

// A comparison is to choose with (`x < y ? x : y`): where its own bits are asked for, compilers
// take it apart for processors that compare into a mask.
template <typename Lanes>
using LaneBits = decltype(Lanes{} < Lanes{});

template <typename Lanes>
TORCH_XLA_INLINE LaneBits<Lanes> bits_of(Lanes lanes) {
  LaneBits<Lanes> bits;
  std::memcpy(&bits, &lanes, sizeof(bits));
  return bits;
}

template <typename Lanes>
TORCH_XLA_INLINE Lanes lanes_of(LaneBits<Lanes> bits) {
  Lanes lanes;
  std::memcpy(&lanes, &bits, sizeof(lanes));
  return lanes;
}

template <typename Lanes>
TORCH_XLA_INLINE Lanes load_lanes(const float* numbers) {
  Lanes lanes;
  std::memcpy(&lanes, numbers, sizeof(lanes));
  return lanes;
}

template <typename Lanes>
TORCH_XLA_INLINE Lanes load_lanes(const c10::BFloat16* numbers) {
  typename detail::LanesOf<kLanes<Lanes>>::Halves halves;
  std::memcpy(&halves, numbers, sizeof(halves));
  return lanes_of<Lanes>(__builtin_convertvector(halves, LaneBits<Lanes>) << 16);
}

template <typename Lanes>
TORCH_XLA_INLINE void store_lanes(float* numbers, Lanes lanes) {
  std::memcpy(numbers, &lanes, sizeof(lanes));
}

template <typename Lanes>
TORCH_XLA_INLINE void store_lanes(c10::BFloat16* numbers, Lanes lanes) {
  constexpr int32_t kBelowHalf = 0x7fff, kNaN = 0x7fc0;
  const LaneBits<Lanes> bits = bits_of(lanes), odd = (bits >> 16) & 1;
  const LaneBits<Lanes> rounded = (bits + kBelowHalf + odd) >> 16;  // to even
  const LaneBits<Lanes> nan = kNaN - LaneBits<Lanes>{};
  const auto halves = __builtin_convertvector(lanes == lanes ? rounded : nan,
                                              typename detail::LanesOf<kLanes<Lanes>>::Halves);
  std::memcpy(static_cast<void*>(numbers), &halves, sizeof(halves));
}

template <typename Lanes>
TORCH_XLA_INLINE float sum_of_lanes(Lanes lanes) {
  float sum = 0;
  for (int64_t i = 0; i < kLanes<Lanes>; ++i) {
    sum += lanes[i];
  }
  return sum;
}

template <typename Bits>
TORCH_XLA_INLINE bool has_bits(Bits bits) {
  uint64_t words[sizeof(bits) / sizeof(uint64_t)], any = 0;
  std::memcpy(words, &bits, sizeof(bits));
  for (uint64_t word : words) {
    any |= word;
  }
  return any != 0;
}

#if defined(__x86_64__)
namespace detail {

template <typename Body>
[[gnu::target("avx512f,avx512bw,avx512vl,fma")]] void with_avx512(Body& body) {
  body.template run<WideLanes>();
}

template <typename Body>
[[gnu::target("avx2,fma")]] void with_avx2(Body& body) {
  body.template run<MiddleLanes>();
}

}  // namespace detail

// Runs `body`, which must be TORCH_XLA_INLINE as all that it calls, with the widest lanes.
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
    body.template run<NarrowLanes>();
  }
}
#else
template <typename Body>
void with_widest_lanes(Body body) {
  body.template run<NarrowLanes>();
}
#endif

}  // namespace torch_xla
