#include "host_ops/rows.h"

#include "host_ops/lanes.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace torch_xla {

namespace {

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

template <typename Lanes, typename T>
TORCH_XLA_INLINE Lanes load_some(const T* numbers, int64_t count, float filler) {
  return count < kLanes<Lanes> ? load_rest<Lanes>(numbers, count, filler)
                               : load_lanes<Lanes>(numbers);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Summed {
  static constexpr float kNone = 0;
  template <typename Numbers>
  static TORCH_XLA_INLINE Numbers together(Numbers x, Numbers y) {
    return x + y;
  }
};

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
TORCH_XLA_INLINE float across(Lanes lanes) {
  if constexpr (kLanes < Lanes >> 4) {
    typename detail::LanesOf<kLanes<Lanes> / 2>::Floats halves[2];
    std::memcpy(halves, &lanes, sizeof(lanes));
    return across<How>(How::together(halves[0], halves[1]));
  } else {
    return How::together(How::together(lanes[0], lanes[1]), How::together(lanes[2], lanes[3]));
  }
}

constexpr int64_t kRowChains = 8;  // of results that do not wait for each other

template <typename How, typename Lanes, typename T>
TORCH_XLA_INLINE float reduced(const T* numbers, int64_t count) {
  Lanes chains[kRowChains];
  for (Lanes& chain : chains) {
    chain = How::kNone - Lanes{};
  }
  int64_t i = 0;
  for (; i + kRowChains * kLanes<Lanes> <= count; i += kRowChains * kLanes<Lanes>) {
    for (int64_t k = 0; k < kRowChains; ++k) {
      chains[k] = How::together(load_lanes<Lanes>(numbers + i + k * kLanes<Lanes>), chains[k]);
    }
  }
  for (; i < count; i += kLanes<Lanes>) {
    chains[0] = How::together(load_some<Lanes>(numbers + i, count - i, How::kNone), chains[0]);
  }
  for (int64_t half = kRowChains / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) {
      chains[k] = How::together(chains[k], chains[k + half]);
    }
  }
  return across<How>(chains[0]);
}

// The largest bits but for the sign: above those of infinity there is NaN.
template <typename Lanes, typename T>
TORCH_XLA_INLINE bool has_nan(const T* numbers, int64_t count) {
  constexpr int32_t kMagnitude = 0x7fffffff, kBitsOfInfinity = 0x7f800000;
  LaneBits<Lanes> most = {};
  for (int64_t i = 0; i < count; i += kLanes<Lanes>) {
    const LaneBits<Lanes> bits = bits_of(load_some<Lanes>(numbers + i, count - i, 0)) & kMagnitude;
    most = larger(bits, most);
  }
  return has_bits(most > kBitsOfInfinity ? most : LaneBits<Lanes>{});
}

struct SumOfRow {
  template <typename Lanes, typename T>
  static TORCH_XLA_INLINE float of(const T* numbers, int64_t count) {
    return reduced<Summed, Lanes>(numbers, count);
  }
};

template <typename How>
struct ExtremeOfRow {
  template <typename Lanes, typename T>
  static TORCH_XLA_INLINE float of(const T* numbers, int64_t count) {
    const float extreme = reduced<How, Lanes>(numbers, count);
    return has_nan<Lanes>(numbers, count) ? std::numeric_limits<float>::quiet_NaN() : extreme;
  }
};

template <typename T>
int32_t first_nan(const T* numbers) {
  int32_t i = 0;
  for (; numbers[i] == numbers[i]; ++i) {
  }
  return i;
}

// The first place of a row's extreme.
template <typename Lanes, typename T>
TORCH_XLA_INLINE int32_t place_of(float extreme, const T* numbers, int64_t count) {
  if (extreme != extreme) {
    return first_nan(numbers);
  }
  constexpr int32_t kNowhere = std::numeric_limits<int32_t>::max();
  LaneBits<Lanes> here, first = kNowhere - LaneBits<Lanes>{};
  for (int32_t lane = 0; lane < kLanes<Lanes>; ++lane) {
    here[lane] = lane;
  }
  int64_t i = 0;
  for (; i + kLanes<Lanes> <= count; i += kLanes<Lanes>) {
    first = load_lanes<Lanes>(numbers + i) == extreme ? smaller(here, first) : first;
    here += static_cast<int32_t>(kLanes<Lanes>);
  }
  int32_t place = kNowhere;
  for (int64_t lane = 0; lane < kLanes<Lanes>; ++lane) {
    place = std::min(place, static_cast<int32_t>(first[lane]));
  }
  for (; place == kNowhere; ++i) {
    place = static_cast<float>(numbers[i]) == extreme ? static_cast<int32_t>(i) : kNowhere;
  }
  return place;
}

// `results`, and `places` where they are asked for: one for each piece of a row.
template <typename How, typename T>
struct ReducePieces {
  static constexpr int64_t kPiece = 1 << 14;  // numbers
  const T* numbers;
  int64_t columns, pieces_of_row, first, count;
  float* results;
  int32_t* places;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t piece = first; piece < first + count; ++piece) {
      const int64_t row = piece / pieces_of_row, start = piece % pieces_of_row * kPiece;
      const int64_t length = std::min(kPiece, columns - start);
      const T* of_piece = numbers + row * columns + start;
      results[piece] = How::template of<Lanes>(of_piece, length);
      if (places != nullptr) {
        places[piece] =
            static_cast<int32_t>(start) + place_of<Lanes>(results[piece], of_piece, length);
      }
    }
  }
};

template <typename T>
struct ExponentialsOfRows {
  const T* numbers;
  int64_t rows, columns;
  float *largest, *sums;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t row = 0; row < rows; ++row) {
      const T* of_row = numbers + row * columns;
      largest[row] = reduced<Largest, Lanes>(of_row, columns);
      sums[row] = sum_of<Lanes>(of_row, largest[row]);
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE float sum_of(const T* row, float high) const {
    constexpr int64_t kChains = 4;
    Lanes chains[kChains] = {};
    int64_t i = 0;
    for (; i + kChains * kLanes<Lanes> <= columns; i += kChains * kLanes<Lanes>) {
      for (int64_t k = 0; k < kChains; ++k) {
        chains[k] += exponential(load_lanes<Lanes>(row + i + k * kLanes<Lanes>) - high);
      }
    }
    for (; i + kLanes<Lanes> <= columns; i += kLanes<Lanes>) {
      chains[0] += exponential(load_lanes<Lanes>(row + i) - high);
    }
    float sum = sum_of_lanes((chains[0] + chains[1]) + (chains[2] + chains[3]));
    if (i < columns) {
      const Lanes powers = exponential(load_rest<Lanes>(row + i, columns - i, high) - high);
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

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = numbers + row * columns;
      int64_t i = 0;
      for (; i + kLanes<Lanes> <= columns; i += kLanes<Lanes>) {
        store_lanes(sums + i, load_lanes<Lanes>(sums + i) + load_lanes<Lanes>(from + i));
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

// One for each row, or for each piece of all rows.
struct Found {
  float* results;
  int32_t* places;  // null: not asked for
};

template <typename How, typename T>
void reduce_pieces(Workers& workers, const Matrix& matrix, const T* numbers, int64_t of_row,
                   Found found) {
  run_ranges(workers, matrix.rows * of_row, matrix.columns / of_row,
             [&](int64_t first, int64_t count) {
               with_widest_lanes(ReducePieces<How, T>{numbers, matrix.columns, of_row, first, count,
                                                      found.results, found.places});
             });
}

template <typename How>
void reduce_rows(Workers& workers, const Matrix& matrix, Found of_rows) {
  with_type(matrix, [&](const auto* numbers) {
    constexpr int64_t kPiece = ReducePieces<How, std::remove_cvref_t<decltype(*numbers)>>::kPiece;
    const int64_t of_row = (matrix.columns + kPiece - 1) / kPiece;
    if (of_row == 1) {
      return reduce_pieces<How>(workers, matrix, numbers, of_row, of_rows);
    }
    const auto count = static_cast<size_t>(matrix.rows * of_row);
    std::vector<float> results(count);
    std::vector<int32_t> places(of_rows.places != nullptr ? count : 0);
    reduce_pieces<How>(workers, matrix, numbers, of_row,
                       {results.data(), of_rows.places != nullptr ? places.data() : nullptr});
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const float* of_pieces = results.data() + row * of_row;
      const float result = How::template of<NarrowLanes>(of_pieces, of_row);
      of_rows.results[row] = result;
      if (of_rows.places != nullptr) {
        const int32_t piece = place_of<NarrowLanes>(result, of_pieces, of_row);
        of_rows.places[row] = places[static_cast<size_t>(row * of_row + piece)];
      }
    }
  });
}

}  // namespace

void sums_of_rows(Workers& workers, const Matrix& matrix, float* sums) {
  reduce_rows<SumOfRow>(workers, matrix, {sums, nullptr});
}

void largest_of_rows(Workers& workers, const Matrix& matrix, float* largest, int32_t* places) {
  reduce_rows<ExtremeOfRow<Largest>>(workers, matrix, {largest, places});
}

void smallest_of_rows(Workers& workers, const Matrix& matrix, float* smallest, int32_t* places) {
  reduce_rows<ExtremeOfRow<Smallest>>(workers, matrix, {smallest, places});
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
