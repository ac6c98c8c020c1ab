// Several numbers at a time, for kernels of our own: vectors as wide as the processor's registers.
// Wider ones would be right, too, but compilers take comparisons and choices of them apart, number
// by number. Stateless.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

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

// Numbers of half precision by the processor's instructions: GCC takes them in code that stands
// in functions for other processors as well, if it never comes to run there.
namespace detail {

#if defined(__x86_64__) && !defined(__clang__)
template <typename Lanes>
inline constexpr bool kConvertsHalves = kLanes<Lanes> > kLanes<NarrowLanes>;
#define TORCH_XLA_WIDEN_HALVES(from, to) asm("vcvtph2ps %1, %0" : "=v"(to) : "v"(from))
#define TORCH_XLA_ROUND_TO_HALVES(from, to) asm("vcvtps2ph $0, %1, %0" : "=v"(to) : "v"(from))
#else
template <typename Lanes>
inline constexpr bool kConvertsHalves = false;
#define TORCH_XLA_WIDEN_HALVES(from, to)
#define TORCH_XLA_ROUND_TO_HALVES(from, to)
#endif

// Subnormal numbers come out as differences of normal ones: programs run with subnormals off.
template <typename Lanes>
TORCH_XLA_INLINE Lanes from_halves(const typename LanesOf<kLanes<Lanes>>::Halves& halves) {
  if constexpr (kConvertsHalves<Lanes>) {
    Lanes lanes;
    TORCH_XLA_WIDEN_HALVES(halves, lanes);
    return lanes;
  }
  constexpr int32_t kMagnitude = 0x7fff, kInfinity = 0x7c00, kNormal = 0x0400;
  constexpr int32_t kBias = (127 - 15) << 23;
  constexpr float kSmallestNormal = 0x1p-14f;
  const auto bits = __builtin_convertvector(halves, LaneBits<Lanes>);
  const LaneBits<Lanes> magnitude = bits & kMagnitude, moved = (magnitude << 13) + kBias;
  const LaneBits<Lanes> subnormal =
      bits_of<Lanes>(lanes_of<Lanes>(moved + (1 << 23)) - kSmallestNormal);
  const LaneBits<Lanes> finite = magnitude < kNormal ? subnormal : moved;
  const LaneBits<Lanes> found = magnitude < kInfinity ? finite : moved + kBias;
  return lanes_of<Lanes>(found | ((bits & ~kMagnitude) << 16));
}

template <typename Lanes>
TORCH_XLA_INLINE auto to_halves(const Lanes& lanes) {
  using Halves = typename LanesOf<kLanes<Lanes>>::Halves;
  if constexpr (kConvertsHalves<Lanes>) {
    Halves halves;
    TORCH_XLA_ROUND_TO_HALVES(lanes, halves);
    return halves;
  }
  constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000, kNormal = (127 - 14) << 23;
  constexpr int32_t kTooLarge = 0x477ff000;  // 65520: what is less is rounded to finite numbers
  constexpr int32_t kBias = (127 - 15) << 23, kBelowHalf = 0x0fff;
  constexpr float kHalf = 0.5f;  // the last bit of numbers from it on is 2^-24, a subnormal's
  constexpr int32_t kBitsOfHalf = 0x3f000000;
  const LaneBits<Lanes> bits = bits_of(lanes), magnitude = bits & kMagnitude;
  const LaneBits<Lanes> odd = (magnitude >> 13) & 1;
  const LaneBits<Lanes> normal = (magnitude - kBias + kBelowHalf + odd) >> 13;  // to even
  const LaneBits<Lanes> subnormal =
      bits_of<Lanes>(lanes_of<Lanes>(magnitude) + kHalf) - kBitsOfHalf;
  const LaneBits<Lanes> infinity = 0x7c00 - LaneBits<Lanes>{}, nan = 0x7e00 - LaneBits<Lanes>{};
  const LaneBits<Lanes> small = magnitude < kNormal ? subnormal : normal;
  const LaneBits<Lanes> finite = magnitude < kTooLarge ? small : infinity;
  const LaneBits<Lanes> found = magnitude > kInfinity ? nan : finite;
  return __builtin_convertvector(found | ((bits >> 16) & 0x8000), Halves);
}

}  // namespace detail

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
TORCH_XLA_INLINE Lanes load_lanes(const c10::Half* numbers) {
  typename detail::LanesOf<kLanes<Lanes>>::Halves halves;
  std::memcpy(&halves, numbers, sizeof(halves));
  return detail::from_halves<Lanes>(halves);
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
TORCH_XLA_INLINE void store_lanes(c10::Half* numbers, Lanes lanes) {
  const auto halves = detail::to_halves(lanes);
  std::memcpy(static_cast<void*>(numbers), &halves, sizeof(halves));
}

// Calls `run` with a std::type_identity of what is to be loaded: false if lanes cannot be.
template <typename Run>
bool with_lane_type(c10::ScalarType dtype, const Run& run) {
  switch (dtype) {
    case c10::ScalarType::Float:
      run(std::type_identity<float>());
      return true;
    case c10::ScalarType::BFloat16:
      run(std::type_identity<c10::BFloat16>());
      return true;
    case c10::ScalarType::Half:
      run(std::type_identity<c10::Half>());
      return true;
    default:
      return false;
  }
}

inline bool has_lanes(c10::ScalarType dtype) {
  return with_lane_type(dtype, [](auto) {});
}

struct Summed {
  static constexpr float kNone = 0;
  template <typename Numbers>
  static TORCH_XLA_INLINE Numbers together(Numbers x, Numbers y) {
    return x + y;
  }
};

// What all lanes are together: halves by halves, which do not wait for each other.
template <typename How, typename Lanes>
TORCH_XLA_INLINE float across(Lanes lanes) {
  if constexpr (kLanes<Lanes> != kLanes<NarrowLanes>) {
    typename detail::LanesOf<kLanes<Lanes> / 2>::Floats halves[2];
    std::memcpy(halves, &lanes, sizeof(lanes));
    return across<How>(How::together(halves[0], halves[1]));
  } else {
    return How::together(How::together(lanes[0], lanes[1]), How::together(lanes[2], lanes[3]));
  }
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
[[gnu::target("avx512f,avx512bw,avx512vl,fma,f16c")]] void with_avx512(Body& body) {
  body.template run<WideLanes>();
}

template <typename Body>
[[gnu::target("avx2,fma,f16c")]] void with_avx2(Body& body) {
  body.template run<MiddleLanes>();
}

}  // namespace detail

// Runs `body`, which must be TORCH_XLA_INLINE as all that it calls, with the widest lanes.
template <typename Body>
void with_widest_lanes(Body body) {
  static const bool avx512 =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  // Processors with these have f16c, too.
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
