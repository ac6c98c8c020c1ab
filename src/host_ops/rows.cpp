#include "host_ops/rows.h"

#include "host_ops/lanes.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace torch_xla {

namespace {

// One instruction, which gives y where there is NaN.
TORCH_XLA_INLINE Lanes larger(Lanes x, Lanes y) { return x > y ? x : y; }
TORCH_XLA_INLINE float larger(float x, float y) { return x > y ? x : y; }

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

struct Summed {
  static constexpr float kNone = 0;
  template <typename Numbers>
  static TORCH_XLA_INLINE Numbers together(Numbers x, Numbers y) {
    return x + y;
  }
};

struct Largest {
  static constexpr float kNone = -std::numeric_limits<float>::infinity();
  template <typename Numbers>
  static TORCH_XLA_INLINE Numbers together(Numbers x, Numbers y) {
    return larger(x, y);
  }
};

constexpr int64_t kRowChains = 4;  // of results that do not wait for each other

template <typename How, typename T>
TORCH_XLA_INLINE float reduced(const T* numbers, int64_t count) {
  Lanes chains[kRowChains];
  for (Lanes& chain : chains) {
    chain = How::kNone - Lanes{};
  }
  int64_t i = 0;
  for (; i + kRowChains * kLanes <= count; i += kRowChains * kLanes) {
    for (int64_t k = 0; k < kRowChains; ++k) {
      chains[k] = How::together(load_lanes(numbers + i + k * kLanes), chains[k]);
    }
  }
  for (; i < count; i += kLanes) {
    const int64_t rest = count - i;
    chains[0] = How::together(
        rest < kLanes ? load_rest(numbers + i, rest, How::kNone) : load_lanes(numbers + i),
        chains[0]);
  }
  const Lanes all =
      How::together(How::together(chains[0], chains[1]), How::together(chains[2], chains[3]));
  float result = How::kNone;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    result = How::together(all[lane], result);
  }
  return result;
}

// The largest bits but for the sign: above those of infinity there is NaN.
template <typename T>
TORCH_XLA_INLINE bool has_nan(const T* numbers, int64_t count) {
  using Words [[gnu::vector_size(kLanes * sizeof(int32_t))]] = int32_t;
  constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  Words most = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t rest = count - i;
    const Lanes lanes = rest < kLanes ? load_rest(numbers + i, rest, 0) : load_lanes(numbers + i);
    Words bits;
    std::memcpy(&bits, &lanes, sizeof(bits));
    bits &= kMagnitude;
    most = bits > most ? bits : most;
  }
  bool found = false;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    found = found || most[lane] > kInfinity;
  }
  return found;
}

struct SumOfRow {
  template <typename T>
  static TORCH_XLA_INLINE float of(const T* numbers, int64_t count) {
    return reduced<Summed>(numbers, count);
  }
};

struct LargestOfRow {
  template <typename T>
  static TORCH_XLA_INLINE float of(const T* numbers, int64_t count) {
    const float largest = reduced<Largest>(numbers, count);
    return has_nan(numbers, count) ? std::numeric_limits<float>::quiet_NaN() : largest;
  }
};

// `results`: one for each piece of a row.
template <typename How, typename T>
struct ReducePieces {
  static constexpr int64_t kPiece = 1 << 14;  // numbers
  const T* numbers;
  int64_t columns, pieces_of_row, first, count;
  float* results;

  TORCH_XLA_INLINE void operator()() const {
    for (int64_t piece = first; piece < first + count; ++piece) {
      const int64_t row = piece / pieces_of_row, start = piece % pieces_of_row * kPiece;
      const int64_t length = std::min(kPiece, columns - start);
      results[piece] = How::of(numbers + row * columns + start, length);
    }
  }
};

template <typename T>
struct ExponentialsOfRows {
  const T* numbers;
  int64_t rows, columns;
  float *largest, *sums;

  TORCH_XLA_INLINE void operator()() const {
    for (int64_t row = 0; row < rows; ++row) {
      const T* of_row = numbers + row * columns;
      largest[row] = reduced<Largest>(of_row, columns);
      sums[row] = sum_of(of_row, largest[row]);
    }
  }

  TORCH_XLA_INLINE float sum_of(const T* row, float high) const {
    Lanes chains[kRowChains] = {};
    int64_t i = 0;
    for (; i + kRowChains * kLanes <= columns; i += kRowChains * kLanes) {
      for (int64_t k = 0; k < kRowChains; ++k) {
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

// Of some rows, added to `sums`.
template <typename T>
struct AddRows {
  const T* numbers;
  int64_t rows, columns;
  float* sums;

  TORCH_XLA_INLINE void operator()() const {
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = numbers + row * columns;
      int64_t i = 0;
      for (; i + kLanes <= columns; i += kLanes) {
        store_lanes(sums + i, load_lanes(sums + i) + load_lanes(from + i));
      }
      for (; i < columns; ++i) {
        sums[i] += static_cast<float>(from[i]);
      }
    }
  }
};

// In as many parts as are worth a handover.
void run_ranges(Workers& workers, int64_t size, int64_t numbers_of_each,
                c10::function_ref<void(int64_t, int64_t)> run) {
  constexpr int64_t kWorthAPart = 1 << 14;  // numbers
  const int64_t worth = std::max<int64_t>(size * numbers_of_each / kWorthAPart, 1);
  const std::vector<Range> parts = ranges(size, std::min(worth, workers.count()));
  run_pieces(workers, parts.size(), [&](size_t i) { run(parts[i].start, parts[i].length); });
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

template <typename How>
void reduce_rows(Workers& workers, const Matrix& matrix, float* results) {
  with_type(matrix, [&](const auto* numbers) {
    using Pieces = ReducePieces<How, std::remove_cvref_t<decltype(*numbers)>>;
    const int64_t of_row = (matrix.columns + Pieces::kPiece - 1) / Pieces::kPiece;
    std::vector<float> pieces;
    if (of_row > 1) {
      pieces.resize(static_cast<size_t>(matrix.rows * of_row));
    }
    float* found = of_row > 1 ? pieces.data() : results;
    run_ranges(workers, matrix.rows * of_row, matrix.columns / of_row,
               [&](int64_t first, int64_t count) {
                 with_widest_lanes(Pieces{numbers, matrix.columns, of_row, first, count, found});
               });
    for (int64_t row = 0; of_row > 1 && row < matrix.rows; ++row) {
      results[row] = How::of(found + row * of_row, of_row);
    }
  });
}

}  // namespace

void sums_of_rows(Workers& workers, const Matrix& matrix, float* sums) {
  reduce_rows<SumOfRow>(workers, matrix, sums);
}

void largest_of_rows(Workers& workers, const Matrix& matrix, float* largest) {
  reduce_rows<LargestOfRow>(workers, matrix, largest);
}

void exponentials_of_rows(Workers& workers, const Matrix& matrix, float* largest, float* sums) {
  with_type(matrix, [&](const auto* numbers) {
    run_ranges(workers, matrix.rows, matrix.columns, [&](int64_t start, int64_t rows) {
      with_widest_lanes(ExponentialsOfRows<std::remove_cvref_t<decltype(*numbers)>>{
          numbers + start * matrix.columns, rows, matrix.columns, largest + start, sums + start});
    });
  });
}

// Sums of so many rows are added at once: errors do not grow with the rows, nor do results depend
// on the number of threads.
void sums_of_columns(Workers& workers, const Matrix& matrix, float* sums) {
  constexpr int64_t kFewestRows = 128, kNumbers = 1 << 15;
  const int64_t columns = matrix.columns;
  const int64_t length = std::max(kFewestRows, kNumbers / columns);
  const int64_t blocks = (matrix.rows + length - 1) / length;
  std::vector<float> of_blocks(static_cast<size_t>(blocks * columns), 0.0f);
  with_type(matrix, [&](const auto* numbers) {
    using Block = AddRows<std::remove_cvref_t<decltype(*numbers)>>;
    run_ranges(workers, blocks, length * columns, [&](int64_t first, int64_t count) {
      for (int64_t block = first; block < first + count; ++block) {
        const int64_t start = block * length;
        with_widest_lanes(Block{numbers + start * columns, std::min(length, matrix.rows - start),
                                columns, of_blocks.data() + block * columns});
      }
    });
  });
  std::fill_n(sums, columns, 0.0f);
  with_widest_lanes(AddRows<float>{of_blocks.data(), blocks, columns, sums});
}

}  // namespace torch_xla
