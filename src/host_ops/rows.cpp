#include "host_ops/rows.h"

#include "host_ops/lane_sums.h"
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

template <typename How, typename Lanes>
struct Accumulated {
  static constexpr int64_t kChains = 8;  // that do not wait for each other
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
    for (int64_t k = 0; k < kChains; ++k) {
      chains[k].add(load_lanes<Lanes>(numbers + i + k * kLanes<Lanes>));
    }
  }
  for (; i < count; i += kLanes<Lanes>) {
    chains[0].add(load_some<Lanes>(numbers + i, count - i, Accumulator::kNone));
  }
  for (int64_t half = kChains / 2; half > 0; half /= 2) {
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
      largest[row] = reduced<Accumulated<Largest, Lanes>, Lanes>(of_row, columns);
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

// `powers`: room for a row.
template <typename T>
struct SoftmaxOfRows {
  const T* numbers;
  int64_t rows, columns;
  bool zero_if_masked;
  float* powers;
  T* results;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = numbers + row * columns;
      const float high = ExtremeOfRow<Largest>::template of<Lanes>(from, columns);
      if (zero_if_masked && high == -kInfinity) {
        std::fill_n(results + row * columns, columns, T(0));
      } else {
        const float sum = write_powers<Lanes>(from, high);
        write_row<Lanes>(1 / sum, results + row * columns);
      }
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE float write_powers(const T* row, float high) const {
    Lanes sums[2] = {};
    int64_t i = 0;
    for (int64_t k = 0; i + kLanes<Lanes> <= columns; i += kLanes<Lanes>, k = 1 - k) {
      const Lanes here = exponential(load_lanes<Lanes>(row + i) - high);
      store_lanes(powers + i, here);
      sums[k] += here;
    }
    float sum = sum_of_lanes(sums[0] + sums[1]);
    if (i < columns) {
      const Lanes rest = exponential(load_rest<Lanes>(row + i, columns - i, high) - high);
      for (int64_t k = 0; k < columns - i; ++k) {
        powers[i + k] = rest[k];
        sum += rest[k];
      }
    }
    return sum;
  }

  template <typename Lanes>
  TORCH_XLA_INLINE void write_row(float scale, T* to) const {
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= columns; i += kLanes<Lanes>) {
      store_lanes(to + i, load_lanes<Lanes>(powers + i) * scale);
    }
    for (; i < columns; ++i) {
      to[i] = powers[i] * scale;
    }
  }
};

template <typename T>
struct Products {
  const T *x, *y;

  template <typename Lanes>
  TORCH_XLA_INLINE void add(int64_t i, Lanes* sums) const {
    sums[0] += load_lanes<Lanes>(x + i) * load_lanes<Lanes>(y + i);
  }
  TORCH_XLA_INLINE void add_one(int64_t i, float* sums) const {
    sums[0] += static_cast<float>(x[i]) * static_cast<float>(y[i]);
  }
};

template <typename T>
struct SoftmaxGradientOfRows {
  const T *gradient, *softmax;
  int64_t rows, columns;
  T* results;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t row = 0; row < rows; ++row) {
      const T *g = gradient + row * columns, *y = softmax + row * columns;
      LaneSums<Lanes, 1> sums;
      sums.add(columns, Products<T>{g, y});
      write<Lanes>(g, y, sums.sum(0), results + row * columns);
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE void write(const T* g, const T* y, float sum, T* to) const {
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= columns; i += kLanes<Lanes>) {
      store_lanes(to + i, (load_lanes<Lanes>(g + i) - sum) * load_lanes<Lanes>(y + i));
    }
    for (; i < columns; ++i) {
      to[i] = (static_cast<float>(g[i]) - sum) * static_cast<float>(y[i]);
    }
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
    constexpr int64_t kAtOnce = 4;
    int64_t row = 0;
    for (; row + kAtOnce <= rows; row += kAtOnce) {
      add<Lanes, kAtOnce>(numbers + row * columns);
    }
    for (; row < rows; ++row) {
      add<Lanes, 1>(numbers + row * columns);
    }
  }

  template <typename Lanes, int64_t kRows>
  TORCH_XLA_INLINE void add(const T* first) const {
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= columns; i += kLanes<Lanes>) {
      Lanes sum = load_lanes<Lanes>(sums + i);
      for (int64_t row = 0; row < kRows; ++row) {
        sum += load_lanes<Lanes>(first + row * columns + i);
      }
      store_lanes(sums + i, sum);
    }
    for (; i < columns; ++i) {
      for (int64_t row = 0; row < kRows; ++row) {
        sums[i] += static_cast<float>(first[row * columns + i]);
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
      const float result = How::Joined::template of<NarrowLanes>(of_pieces, of_row);
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

void squares_of_rows(Workers& workers, const Matrix& matrix, float* sums) {
  reduce_rows<SquaresOfRow>(workers, matrix, {sums, nullptr});
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

void softmax_of_rows(Workers& workers, const Matrix& matrix, bool zero_if_masked, void* results) {
  const int64_t columns = matrix.columns;
  with_type(matrix, [&](const auto* numbers) {
    using T = std::remove_cvref_t<decltype(*numbers)>;
    run_ranges(workers, matrix.rows, columns, [&](int64_t start, int64_t rows) {
      std::vector<float> powers(static_cast<size_t>(columns));
      with_widest_lanes(SoftmaxOfRows<T>{numbers + start * columns, rows, columns, zero_if_masked,
                                         powers.data(),
                                         static_cast<T*>(results) + start * columns});
    });
  });
}

void softmax_gradient_of_rows(Workers& workers, const Matrix& gradient, const Matrix& softmax,
                              void* results) {
  const int64_t columns = gradient.columns;
  with_type(gradient, [&](const auto* numbers) {
    using T = std::remove_cvref_t<decltype(*numbers)>;
    run_ranges(workers, gradient.rows, columns, [&](int64_t start, int64_t rows) {
      const int64_t first = start * columns;
      with_widest_lanes(SoftmaxGradientOfRows<T>{numbers + first,
                                                 static_cast<const T*>(softmax.numbers) + first,
                                                 rows, columns, static_cast<T*>(results) + first});
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
