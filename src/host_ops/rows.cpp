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

// What is said of each number of some rows, added to `sums`, which are each column's.
template <typename Term>
struct AddRows {
  Term term;  // of the first row
  int64_t rows, columns;
  std::array<float*, Term::kSums> sums;

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    constexpr int64_t kAtOnce = 4;
    int64_t row = 0;
    for (; row + kAtOnce <= rows; row += kAtOnce) {
      add<Lanes, kAtOnce>(row * columns);
    }
    for (; row < rows; ++row) {
      add<Lanes, 1>(row * columns);
    }
  }

  template <typename Lanes, int64_t kRows>
  TORCH_XLA_INLINE void add(int64_t first) const {
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= columns; i += kLanes<Lanes>) {
      Lanes found[Term::kSums];
      for (size_t s = 0; s < Term::kSums; ++s) {
        found[s] = load_lanes<Lanes>(sums[s] + i);
      }
      for (int64_t row = 0; row < kRows; ++row) {
        term.add(first + row * columns, i, found);
      }
      for (size_t s = 0; s < Term::kSums; ++s) {
        store_lanes(sums[s] + i, found[s]);
      }
    }
    for (; i < columns; ++i) {
      for (int64_t row = 0; row < kRows; ++row) {
        float found[Term::kSums] = {};
        term.add_one(first + row * columns, i, found);
        for (size_t s = 0; s < Term::kSums; ++s) {
          sums[s][i] += found[s];
        }
      }
    }
  }
};

template <typename T>
struct ColumnTerm {
  static constexpr size_t kSums = 1;
  const T* numbers;
  template <typename Lanes>
  TORCH_XLA_INLINE void add(int64_t row, int64_t i, Lanes* sums) const {
    sums[0] += load_lanes<Lanes>(numbers + row + i);
  }
  TORCH_XLA_INLINE void add_one(int64_t row, int64_t i, float* sums) const {
    sums[0] += static_cast<float>(numbers[row + i]);
  }
};

template <typename T>
struct ColumnSquareOffTerm {
  static constexpr size_t kSums = 1;
  const T* numbers;
  const float* means;
  template <typename Lanes>
  TORCH_XLA_INLINE void add(int64_t row, int64_t i, Lanes* sums) const {
    const Lanes off = load_lanes<Lanes>(numbers + row + i) - load_lanes<Lanes>(means + i);
    sums[0] += off * off;
  }
  TORCH_XLA_INLINE void add_one(int64_t row, int64_t i, float* sums) const {
    const float off = static_cast<float>(numbers[row + i]) - means[i];
    sums[0] += off * off;
  }
};

template <typename T>
struct ColumnGradientTerm {
  static constexpr size_t kSums = 2;
  const T *gradient, *input;
  const float* means;
  template <typename Lanes>
  TORCH_XLA_INLINE void add(int64_t row, int64_t i, Lanes* sums) const {
    const Lanes g = load_lanes<Lanes>(gradient + row + i);
    sums[0] += g;
    sums[1] += g * (load_lanes<Lanes>(input + row + i) - load_lanes<Lanes>(means + i));
  }
  TORCH_XLA_INLINE void add_one(int64_t row, int64_t i, float* sums) const {
    const auto g = static_cast<float>(gradient[row + i]);
    sums[0] += g;
    sums[1] += g * (static_cast<float>(input[row + i]) - means[i]);
  }
};

// Rows of a part that are taken together: errors do not grow with all of them, nor do results
// depend on the number of threads; and they are still near when they are read again.
struct Blocks {
  explicit Blocks(const Matrix& matrix, int64_t number_of_parts = 1)
      : parts(number_of_parts),
        rows(matrix.rows / parts),
        columns(matrix.columns),
        length(std::clamp(kNumbers / columns, kFewestRows, kMostRows)),
        of_part((rows + length - 1) / length) {}

  // `run` of (block, its first number, its rows).
  template <typename Run>
  void for_each(Workers& workers, const Run& run) const {
    run_ranges(workers, parts * of_part, std::min(length, rows) * columns,
               [&](int64_t first, int64_t number) {
                 for (int64_t block = first; block < first + number; ++block) {
                   const int64_t part = block / of_part, within = block % of_part;
                   run(block, (part * rows + within * length) * columns, rows_of(within));
                 }
               });
  }
  int64_t rows_of(int64_t within) const { return std::min(length, rows - within * length); }
  std::vector<float> sums() const { return std::vector<float>(parts * of_part * columns, 0.0f); }

  // More rows would add up too many roundings.
  static constexpr int64_t kFewestRows = 128, kMostRows = 512, kNumbers = 1 << 15;
  const int64_t parts, rows, columns, length, of_part;
};

void add_blocks(const Blocks& blocks, const std::vector<float>& of_blocks, float* sums) {
  std::fill_n(sums, blocks.parts * blocks.columns, 0.0f);
  for (int64_t part = 0; part < blocks.parts; ++part) {
    with_widest_lanes(
        AddRows<ColumnTerm<float>>{{of_blocks.data() + part * blocks.of_part * blocks.columns},
                                   blocks.of_part,
                                   blocks.columns,
                                   {sums + part * blocks.columns}});
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

void sums_of_columns(Workers& workers, const Matrix& matrix, float* sums, int64_t parts) {
  const row_lanes::Blocks blocks(matrix, parts);
  std::vector<float> found = blocks.sums();
  row_lanes::with_type(matrix, [&]<typename T>(const T* numbers) {
    blocks.for_each(workers, [&](int64_t block, int64_t first, int64_t rows) {
      with_widest_lanes(row_lanes::AddRows<row_lanes::ColumnTerm<T>>{
          {numbers + first}, rows, blocks.columns, {found.data() + block * blocks.columns}});
    });
  });
  row_lanes::add_blocks(blocks, found, sums);
}

void moments_of_columns(Workers& workers, const Matrix& matrix, float* means, float* squares) {
  const row_lanes::Blocks blocks(matrix);
  const int64_t columns = blocks.columns;
  std::vector<float> mean = blocks.sums(), square = blocks.sums();
  row_lanes::with_type(matrix, [&]<typename T>(const T* numbers) {
    blocks.for_each(workers, [&](int64_t block, int64_t first, int64_t rows) {
      float *mean_here = mean.data() + block * columns, *here = square.data() + block * columns;
      with_widest_lanes(row_lanes::AddRows<row_lanes::ColumnTerm<T>>{
          {numbers + first}, rows, columns, {mean_here}});
      for (int64_t i = 0; i < columns; ++i) {
        mean_here[i] /= static_cast<float>(rows);
      }
      with_widest_lanes(row_lanes::AddRows<row_lanes::ColumnSquareOffTerm<T>>{
          {numbers + first, mean_here}, rows, columns, {here}});
    });
  });
  for (int64_t i = 0; i < columns; ++i) {
    row_lanes::Moments found{mean[i], square[i]};
    for (int64_t block = 1; block < blocks.of_part; ++block) {
      found = row_lanes::together(found, static_cast<float>(block * blocks.length),
                                  {mean[block * columns + i], square[block * columns + i]},
                                  static_cast<float>(blocks.rows_of(block)));
    }
    means[i] = found.mean;
    squares[i] = found.squares;
  }
}

void gradient_sums_of_columns(Workers& workers, const Matrix& gradient, const Matrix& input,
                              const float* means, float* sums, float* products) {
  const row_lanes::Blocks blocks(gradient);
  std::vector<float> sum = blocks.sums(), product = blocks.sums();
  row_lanes::with_type(gradient, [&]<typename T>(const T* numbers) {
    blocks.for_each(workers, [&](int64_t block, int64_t first, int64_t rows) {
      const int64_t here = block * blocks.columns;
      with_widest_lanes(row_lanes::AddRows<row_lanes::ColumnGradientTerm<T>>{
          {numbers + first, static_cast<const T*>(input.numbers) + first, means},
          rows,
          blocks.columns,
          {sum.data() + here, product.data() + here}});
    });
  });
  row_lanes::add_blocks(blocks, sum, sums);
  row_lanes::add_blocks(blocks, product, products);
}

}  // namespace torch_xla
