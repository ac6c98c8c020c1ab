#include "host_ops/rows.h"

#include "host_ops/lane_sums.h"
#include "host_ops/row_lanes.h"

namespace torch_xla {

namespace row_lanes {
namespace {

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

struct Moments {
  float mean, squares;
};

// Of what two such are of.
Moments together(Moments x, float count_x, Moments y, float count_y) {
  const float part = count_y / (count_x + count_y), apart = y.mean - x.mean;
  return {x.mean + apart * part, x.squares + y.squares + apart * apart * count_x * part};
}

template <typename T>
struct MomentsOfRows {
  static constexpr int64_t kPiece = 1 << 13;  // numbers, which are still near when read again
  const T* numbers;
  int64_t rows, columns;
  float *means, *squares;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = numbers + row * columns;
      Moments found = of_piece<Lanes>(from, std::min(columns, kPiece));
      for (int64_t i = kPiece; i < columns; i += kPiece) {
        const int64_t count = std::min(columns - i, kPiece);
        found = together(found, static_cast<float>(i), of_piece<Lanes>(from + i, count),
                         static_cast<float>(count));
      }
      means[row] = found.mean;
      squares[row] = found.squares;
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE static Moments of_piece(const T* from, int64_t count) {
    const float mean = sum_of_row<Lanes>(count, NumberTerm<T>{from}) / static_cast<float>(count);
    return {mean, sum_of_row<Lanes>(count, SquareOffTerm<T>{from, mean})};
  }
};

template <typename T>
struct GradientSumsOfRows {
  const T *gradient, *input;
  const float* means;
  int64_t rows, columns;
  float *sums, *products;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    for (int64_t row = 0; row < rows; ++row) {
      LaneSums<Lanes, 2> found;
      found.add(columns, GradientTerm<T>{gradient + row * columns, input + row * columns, nullptr,
                                         means[row]});
      sums[row] = found.sum(0);
      products[row] = found.sum(1);
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
  with_type(matrix, [&]<typename T>(const T* numbers) {
    constexpr int64_t kPiece = ReducePieces<How, T>::kPiece;
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
}  // namespace row_lanes

void sums_of_rows(Workers& workers, const Matrix& matrix, float* sums) {
  row_lanes::reduce_rows<row_lanes::SumOfRow>(workers, matrix, {sums, nullptr});
}

void squares_of_rows(Workers& workers, const Matrix& matrix, float* sums) {
  row_lanes::reduce_rows<row_lanes::SquaresOfRow>(workers, matrix, {sums, nullptr});
}

void moments_of_rows(Workers& workers, const Matrix& matrix, float* means, float* squares) {
  row_lanes::with_type(matrix, [&]<typename T>(const T* numbers) {
    row_lanes::run_ranges(workers, matrix.rows, matrix.columns, [&](int64_t start, int64_t rows) {
      with_widest_lanes(row_lanes::MomentsOfRows<T>{
          numbers + start * matrix.columns, rows, matrix.columns, means + start, squares + start});
    });
  });
}

void gradient_sums_of_rows(Workers& workers, const Matrix& gradient, const Matrix& input,
                           const float* means, float* sums, float* products) {
  const int64_t columns = gradient.columns;
  row_lanes::with_type(gradient, [&]<typename T>(const T* numbers) {
    row_lanes::run_ranges(workers, gradient.rows, columns, [&](int64_t start, int64_t rows) {
      with_widest_lanes(row_lanes::GradientSumsOfRows<T>{
          numbers + start * columns, static_cast<const T*>(input.numbers) + start * columns,
          means + start, rows, columns, sums + start, products + start});
    });
  });
}

void largest_of_rows(Workers& workers, const Matrix& matrix, float* largest, int32_t* places) {
  row_lanes::reduce_rows<row_lanes::ExtremeOfRow<row_lanes::Largest>>(workers, matrix,
                                                                      {largest, places});
}

void smallest_of_rows(Workers& workers, const Matrix& matrix, float* smallest, int32_t* places) {
  row_lanes::reduce_rows<row_lanes::ExtremeOfRow<row_lanes::Smallest>>(workers, matrix,
                                                                       {smallest, places});
}

// Sums of so many rows are added at once: errors do not grow with the rows, nor do results depend
// on the number of threads.
void sums_of_columns(Workers& workers, const Matrix& matrix, float* sums) {
  constexpr int64_t kFewestRows = 128, kNumbers = 1 << 15;
  const int64_t columns = matrix.columns;
  const int64_t length = std::max(kFewestRows, kNumbers / columns);
  const int64_t blocks = (matrix.rows + length - 1) / length;
  std::vector<float> of_blocks(static_cast<size_t>(blocks * columns), 0.0f);
  row_lanes::with_type(matrix, [&]<typename T>(const T* numbers) {
    row_lanes::run_ranges(workers, blocks, length * columns, [&](int64_t first, int64_t count) {
      for (int64_t block = first; block < first + count; ++block) {
        const int64_t start = block * length;
        with_widest_lanes(row_lanes::AddRows<T>{numbers + start * columns,
                                                std::min(length, matrix.rows - start), columns,
                                                of_blocks.data() + block * columns});
      }
    });
  });
  std::fill_n(sums, columns, 0.0f);
  with_widest_lanes(row_lanes::AddRows<float>{of_blocks.data(), blocks, columns, sums});
}

}  // namespace torch_xla
