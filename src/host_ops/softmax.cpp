#include "host_ops/softmax.h"

#include "host_ops/lane_sums.h"
#include "host_ops/row_lanes.h"

namespace torch_xla {

namespace row_lanes {
namespace {

// What lies how far below the largest: its exponential. `powers` (null: not wanted) are all.
template <typename T>
struct Powers {
  const T* row;
  float high;
  float* powers;

  template <typename Lanes>
  TORCH_XLA_INLINE void add(int64_t i, Lanes* sums) const {
    const Lanes here = exponential(load_lanes<Lanes>(row + i) - high);
    if (powers != nullptr) {
      store_lanes(powers + i, here);
    }
    sums[0] += here;
  }

  template <typename Lanes>
  TORCH_XLA_INLINE float sum(int64_t columns) const {
    LaneSums<Lanes, 1> sums;
    const int64_t whole = sums.add_whole(columns, *this);
    return whole == columns ? sums.sum(0)
                            : sums.sum(0) + sum_of_last<Lanes>(columns, columns - whole);
  }

  template <typename Lanes>
  TORCH_XLA_INLINE float sum_of_last(int64_t columns, int64_t rest) const {
    const Lanes last = exponential(load_last<Lanes>(row, columns, rest, -kInfinity) - high);
    if (powers != nullptr) {
      for (int64_t i = 0; i < rest; ++i) {
        powers[columns - rest + i] = last[columns < kLanes<Lanes> ? i : kLanes<Lanes> - rest + i];
      }
    }
    return across<Summed>(last);
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
      const T* from = numbers + row * columns;
      largest[row] = reduced<Accumulated<Largest, Lanes>, Lanes>(from, columns);
      sums[row] = Powers<T>{from, largest[row], nullptr}.template sum<Lanes>(columns);
    }
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
      const float high = reduced<Accumulated<Largest, Lanes>, Lanes>(from, columns);
      if (zero_if_masked && high == -kInfinity && !has_nan<Lanes>(from)) {
        std::fill_n(results + row * columns, columns, T(0));
      } else {
        const float sum = Powers<T>{from, high, powers}.template sum<Lanes>(columns);
        write_row<Lanes>(1 / sum, results + row * columns);
      }
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE bool has_nan(const T* row) const {
    return ExtremeOfRow<Largest>::template of<Lanes>(row, columns) != -kInfinity;
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
  template <typename Lanes>
  TORCH_XLA_INLINE float sum(int64_t columns) const {
    LaneSums<Lanes, 1> sums;
    const int64_t whole = sums.add_whole(columns, *this), rest = columns - whole;
    return rest == 0 ? sums.sum(0)
                     : sums.sum(0) + across<Summed>(load_last<Lanes>(x, columns, rest, 0) *
                                                    load_last<Lanes>(y, columns, rest, 0));
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
      write<Lanes>(g, y, Products<T>{g, y}.template sum<Lanes>(columns), results + row * columns);
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

}  // namespace
}  // namespace row_lanes

void exponentials_of_rows(Workers& workers, const Matrix& matrix, float* largest, float* sums) {
  row_lanes::with_type(matrix, [&]<typename T>(const T* numbers) {
    row_lanes::run_ranges(workers, matrix.rows, matrix.columns, [&](int64_t start, int64_t rows) {
      with_widest_lanes(row_lanes::ExponentialsOfRows<T>{
          numbers + start * matrix.columns, rows, matrix.columns, largest + start, sums + start});
    });
  });
}

void softmax_of_rows(Workers& workers, const Matrix& matrix, bool zero_if_masked, void* results) {
  const int64_t columns = matrix.columns;
  row_lanes::with_type(matrix, [&]<typename T>(const T* numbers) {
    row_lanes::run_ranges(workers, matrix.rows, columns, [&](int64_t start, int64_t rows) {
      std::vector<float> powers(static_cast<size_t>(columns));
      with_widest_lanes(row_lanes::SoftmaxOfRows<T>{numbers + start * columns, rows, columns,
                                                    zero_if_masked, powers.data(),
                                                    static_cast<T*>(results) + start * columns});
    });
  });
}

void softmax_gradient_of_rows(Workers& workers, const Matrix& gradient, const Matrix& softmax,
                              void* results) {
  const int64_t columns = gradient.columns;
  row_lanes::with_type(gradient, [&]<typename T>(const T* numbers) {
    row_lanes::run_ranges(workers, gradient.rows, columns, [&](int64_t start, int64_t rows) {
      const int64_t first = start * columns;
      with_widest_lanes(row_lanes::SoftmaxGradientOfRows<T>{
          numbers + first, static_cast<const T*>(softmax.numbers) + first, rows, columns,
          static_cast<T*>(results) + first});
    });
  });
}

}  // namespace torch_xla
