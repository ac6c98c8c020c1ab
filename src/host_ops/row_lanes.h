// What the kernels of whole rows (rows.cpp, softmax.cpp) do with the numbers of one. Stateless.
#pragma once

#include "host_ops/lanes.h"
#include "host_ops/rows.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

namespace torch_xla::row_lanes {

// y where there is NaN.
template <typename Numbers>
TORCH_XLA_INLINE Numbers larger(Numbers x, Numbers y) {
  return x > y ? x : y;
}
template <typename Numbers>
TORCH_XLA_INLINE Numbers smaller(Numbers x, Numbers y) {
  return x < y ? x : y;
}

// Of numbers that are not positive; NaN of NaN. What is too small for a normal number is zero.
// 2^n * e^r with |r| <= ln(2) / 2, e^r by its series: an error of 2 in the last place.
template <typename Lanes>
TORCH_XLA_INLINE Lanes exponential(Lanes x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: what is added to it loses its fraction
  constexpr float kLowest = -87.3f;
  const Lanes bounded = x < kLowest ? kLowest - Lanes{} : x;
  const Lanes rounded = bounded * kLog2E + kRound;
  const Lanes n = rounded - kRound;
  const Lanes r = (bounded - n * kLn2High) - n * kLn2Low;
  Lanes series = r * (1.0f / 5040) + 1.0f / 720;
  for (const float coefficient : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    series = series * r + coefficient;
  }
  const Lanes power = lanes_of<Lanes>(bits_of(series) + (bits_of(rounded) << 23));
  const Lanes zero_if_low = x < kLowest ? Lanes{} : power;
  return x == x ? zero_if_low : x;
}

// The numbers behind the last whole lanes, and `filler`.
template <typename Lanes, typename T>
TORCH_XLA_INLINE Lanes load_rest(const T* numbers, int64_t count, float filler) {
  Lanes lanes = filler - Lanes{};
  for (int64_t i = 0; i < count; ++i) {
    lanes[i] = static_cast<float>(numbers[i]);
  }
  return lanes;
}

// The last `rest` of `count` numbers, behind the last whole lanes, and `filler`.
template <typename Lanes, typename T>
TORCH_XLA_INLINE Lanes load_last(const T* numbers, int64_t count, int64_t rest, float filler) {
  if (count < kLanes<Lanes>) {
    return load_rest<Lanes>(numbers, count, filler);
  }
  LaneBits<Lanes> place;
  for (int32_t lane = 0; lane < kLanes<Lanes>; ++lane) {
    place[lane] = lane;
  }
  const auto first = static_cast<int32_t>(kLanes<Lanes> - rest);
  const Lanes lanes = load_lanes<Lanes>(numbers + count - kLanes<Lanes>);
  return place >= first ? lanes : filler - Lanes{};
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Largest {
  static constexpr float kNone = -kInfinity;
  template <typename Numbers>
  static TORCH_XLA_INLINE Numbers together(Numbers x, Numbers y) {
    return larger(x, y);
  }
};

struct Smallest {
  static constexpr float kNone = kInfinity;
  template <typename Numbers>
  static TORCH_XLA_INLINE Numbers together(Numbers x, Numbers y) {
    return smaller(x, y);
  }
};

template <typename How, typename Lanes>
struct Accumulated {
  static constexpr int64_t kChains = 4;  // that do not wait for each other
  static constexpr float kNone = How::kNone;

  TORCH_XLA_INLINE void add(Lanes lanes) { value = How::together(lanes, value); }
  TORCH_XLA_INLINE void add(const Accumulated& other) { add(other.value); }
  TORCH_XLA_INLINE float result() const { return across<How>(value); }

  Lanes value = kNone - Lanes{};
};

template <typename Lanes>
struct AccumulatedSquares : Accumulated<Summed, Lanes> {
  TORCH_XLA_INLINE void add(Lanes lanes) { this->value += lanes * lanes; }
  TORCH_XLA_INLINE void add(const AccumulatedSquares& other) { this->value += other.value; }
};

// NaN where there was any.
template <typename How, typename Lanes>
struct AccumulatedOrNaN {
  static constexpr int64_t kChains = 4;
  static constexpr float kNone = How::kNone;

  TORCH_XLA_INLINE void add(Lanes lanes) {
    constexpr int32_t kMagnitude = 0x7fffffff;
    value = How::together(lanes, value);
    most = larger(bits_of(lanes) & kMagnitude, most);
  }
  TORCH_XLA_INLINE void add(const AccumulatedOrNaN& other) {
    value = How::together(other.value, value);
    most = larger(other.most, most);
  }
  TORCH_XLA_INLINE float result() const {
    constexpr int32_t kBitsOfInfinity = 0x7f800000;
    const bool any = has_bits(most > kBitsOfInfinity ? most : LaneBits<Lanes>{});
    return any ? std::numeric_limits<float>::quiet_NaN() : across<How>(value);
  }

  Lanes value = kNone - Lanes{};
  LaneBits<Lanes> most = {};  // bits but for the sign: above those of infinity there is NaN
};

template <typename Accumulator, typename Lanes, typename T>
TORCH_XLA_INLINE float reduced(const T* numbers, int64_t count) {
  constexpr int64_t kChains = Accumulator::kChains, kStep = kChains * kLanes<Lanes>;
  Accumulator chains[kChains];
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    // Else they would be kept in memory.
#pragma GCC unroll 8
    for (int64_t k = 0; k < kChains; ++k) {
      chains[k].add(load_lanes<Lanes>(numbers + i + k * kLanes<Lanes>));
    }
  }
  for (; i + kLanes<Lanes> <= count; i += kLanes<Lanes>) {
    chains[0].add(load_lanes<Lanes>(numbers + i));
  }
  if (i < count) {
    chains[0].add(load_last<Lanes>(numbers, count, count - i, Accumulator::kNone));
  }
#pragma GCC unroll 8
  for (int64_t half = kChains / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int64_t k = 0; k < half; ++k) {
      chains[k].add(chains[k + half]);
    }
  }
  return chains[0].result();
}

// How a row, or a piece of it, becomes a number; and what joins those of its pieces.
struct SumOfRow {
  using Joined = SumOfRow;
  template <typename Lanes, typename T>
  static TORCH_XLA_INLINE float of(const T* numbers, int64_t count) {
    return reduced<Accumulated<Summed, Lanes>, Lanes>(numbers, count);
  }
};

struct SquaresOfRow {
  using Joined = SumOfRow;
  template <typename Lanes, typename T>
  static TORCH_XLA_INLINE float of(const T* numbers, int64_t count) {
    return reduced<AccumulatedSquares<Lanes>, Lanes>(numbers, count);
  }
};

template <typename How>
struct ExtremeOfRow {
  using Joined = ExtremeOfRow;
  template <typename Lanes, typename T>
  static TORCH_XLA_INLINE float of(const T* numbers, int64_t count) {
    return reduced<AccumulatedOrNaN<How, Lanes>, Lanes>(numbers, count);
  }
};

// In as many parts as are worth a handover.
inline void run_ranges(Workers& workers, int64_t size, int64_t numbers_of_each,
                       c10::function_ref<void(int64_t, int64_t)> run) {
  constexpr int64_t kWorthAPart = 1 << 14;  // numbers
  const int64_t worth = std::max<int64_t>(size * numbers_of_each / kWorthAPart, 1);
  const std::vector<Range> parts = ranges(size, std::min(worth, workers.count()));
  run_pieces(workers, parts.size(), [&](size_t i) { run(parts[i].start, parts[i].length); });
}

template <typename Run>
void with_type(const Matrix& matrix, const Run& run) {
  const bool known = with_lane_type(matrix.dtype, [&]<typename T>(std::type_identity<T>) {
    run(static_cast<const T*>(matrix.numbers));
  });
  TORCH_CHECK(known, "expected float, bfloat16 or half, not ", matrix.dtype);
}

}  // namespace torch_xla::row_lanes
