#include "host_ops/rows.h"

#include "host_ops/lanes.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace torch_xla {

namespace {

TORCH_XLA_INLINE Lanes larger(Lanes x, Lanes y) { return x > y ? x : y; }

// Of numbers that are not positive; NaN of NaN. What is too small for a normal number is zero.
// 2^n * e^r with |r| <= ln(2) / 2, e^r by its series: an error of 2 in the last place.
TORCH_XLA_INLINE Lanes exponential(Lanes x) {
  using Words [[gnu::vector_size(kLanes * sizeof(int32_t))]] = int32_t;
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
  Words bits, exponent;
  std::memcpy(&bits, &series, sizeof(bits));
  std::memcpy(&exponent, &rounded, sizeof(exponent));
  bits += exponent << 23;
  Lanes power;
  std::memcpy(&power, &bits, sizeof(power));
  const Lanes zero_if_low = x < kLowest ? Lanes{} : power;
  return x == x ? zero_if_low : x;
}

// The numbers behind the last whole lanes, and `filler`.
template <typename T>
TORCH_XLA_INLINE Lanes load_rest(const T* numbers, int64_t count, float filler) {
  Lanes lanes = filler - Lanes{};
  for (int64_t i = 0; i < count; ++i) {
    lanes[i] = static_cast<float>(numbers[i]);
  }
  return lanes;
}

template <typename T>
struct ExponentialsOfRows {
  static constexpr int64_t kChains = 4;  // of results that do not wait for each other
  const T* numbers;
  int64_t rows, columns;
  float *largest, *sums;

  TORCH_XLA_INLINE void operator()() const {
    for (int64_t row = 0; row < rows; ++row) {
      const T* of_row = numbers + row * columns;
      largest[row] = largest_of(of_row);
      sums[row] = sum_of(of_row, largest[row]);
    }
  }

  TORCH_XLA_INLINE float largest_of(const T* row) const {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    Lanes chains[kChains];
    for (Lanes& chain : chains) {
      chain = kNone - Lanes{};
    }
    int64_t i = 0;
    for (; i + kChains * kLanes <= columns; i += kChains * kLanes) {
      for (int64_t k = 0; k < kChains; ++k) {
        chains[k] = larger(load_lanes(row + i + k * kLanes), chains[k]);
      }
    }
    for (; i < columns; i += kLanes) {
      const int64_t rest = columns - i;
      chains[0] = larger(rest < kLanes ? load_rest(row + i, rest, kNone) : load_lanes(row + i),
                         chains[0]);
    }
    const Lanes all = larger(larger(chains[0], chains[1]), larger(chains[2], chains[3]));
    float result = kNone;
    for (int64_t i = 0; i < kLanes; ++i) {
      result = all[i] > result ? all[i] : result;
    }
    return result;
  }

  TORCH_XLA_INLINE float sum_of(const T* row, float high) const {
    Lanes chains[kChains] = {};
    int64_t i = 0;
    for (; i + kChains * kLanes <= columns; i += kChains * kLanes) {
      for (int64_t k = 0; k < kChains; ++k) {
        chains[k] += exponential(load_lanes(row + i + k * kLanes) - high);
      }
    }
    for (; i + kLanes <= columns; i += kLanes) {
      chains[0] += exponential(load_lanes(row + i) - high);
    }
    float sum = sum_of_lanes((chains[0] + chains[1]) + (chains[2] + chains[3]));
    if (i < columns) {
      const Lanes powers = exponential(load_rest(row + i, columns - i, high) - high);
      for (int64_t k = 0; k < columns - i; ++k) {
        sum += powers[k];
      }
    }
    return sum;
  }
};

template <typename T>
struct SumsOfColumns {
  // Sums of so many rows are added to the total at once: errors do not grow with the rows.
  static constexpr int64_t kBlock = 128;
  const T* numbers;  // of the first column
  int64_t rows, stride, columns;
  float *sums, *block;  // zeros

  TORCH_XLA_INLINE void operator()() const {
    for (int64_t begin = 0; begin < rows; begin += kBlock) {
      const int64_t end = std::min(rows, begin + kBlock);
      for (int64_t row = begin; row < end; ++row) {
        add(block, numbers + row * stride);
      }
      add(sums, block);
      std::memset(block, 0, static_cast<size_t>(columns) * sizeof(float));
    }
  }

  template <typename From>
  TORCH_XLA_INLINE void add(float* to, const From* from) const {
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) {
      store_lanes(to + i, load_lanes(to + i) + load_lanes(from + i));
    }
    for (; i < columns; ++i) {
      to[i] += static_cast<float>(from[i]);
    }
  }
};

// In as many parts as are worth a handover.
void run_ranges(Workers& workers, int64_t size, int64_t numbers_of_each, int64_t grain,
                c10::function_ref<void(int64_t, int64_t)> run) {
  constexpr int64_t kWorthAPart = 1 << 14;  // numbers
  const int64_t worth = std::max<int64_t>(size * numbers_of_each / kWorthAPart, 1);
  const int64_t parts = std::min({worth, workers.count(), (size + grain - 1) / grain});
  const int64_t length = ((size + parts - 1) / parts + grain - 1) / grain * grain;
  const int64_t count = (size + length - 1) / length;
  run_pieces(workers, static_cast<size_t>(count), [&](size_t i) {
    const int64_t start = static_cast<int64_t>(i) * length;
    run(start, std::min(length, size - start));
  });
}

template <typename Run>
void with_type(const Matrix& matrix, const Run& run) {
  if (matrix.dtype == at::kFloat) {
    run(static_cast<const float*>(matrix.numbers));
  } else {
    TORCH_CHECK(matrix.dtype == at::kBFloat16, "expected float or bfloat16");
    run(static_cast<const c10::BFloat16*>(matrix.numbers));
  }
}

}  // namespace

void exponentials_of_rows(Workers& workers, const Matrix& matrix, float* largest, float* sums) {
  with_type(matrix, [&](const auto* numbers) {
    run_ranges(workers, matrix.rows, matrix.columns, 1, [&](int64_t start, int64_t rows) {
      with_widest_lanes(ExponentialsOfRows<std::remove_cvref_t<decltype(*numbers)>>{
          numbers + start * matrix.columns, rows, matrix.columns, largest + start, sums + start});
    });
  });
}

void sums_of_columns(Workers& workers, const Matrix& matrix, float* sums) {
  with_type(matrix, [&](const auto* numbers) {
    run_ranges(workers, matrix.columns, matrix.rows, kLanes, [&](int64_t start, int64_t columns) {
      std::vector<float> block(static_cast<size_t>(columns), 0.0f);
      std::fill_n(sums + start, columns, 0.0f);
      with_widest_lanes(SumsOfColumns<std::remove_cvref_t<decltype(*numbers)>>{
          numbers + start, matrix.rows, matrix.columns, columns, sums + start, block.data()});
    });
  });
}

}  // namespace torch_xla
