#include "host_ops/softmax.h"

#include "host_ops/lane_sums.h"
#include "host_ops/row_lanes.h"

namespace torch_xla {

namespace row_lanes {
namespace {

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
    constexpr int64_t kChains = 4, kBlock = 16 * kChains * kLanes<Lanes>;
    Lanes total = {};
    int64_t i = 0;
    while (i + kLanes<Lanes> <= columns) {  // errors do not grow with the row
      const int64_t end = std::min(columns, i + kBlock);
      Lanes chains[kChains] = {};
      for (; i + kChains * kLanes<Lanes> <= end; i += kChains * kLanes<Lanes>) {
        for (int64_t k = 0; k < kChains; ++k) {
          chains[k] += exponential(load_lanes<Lanes>(row + i + k * kLanes<Lanes>) - high);
        }
      }
      for (; i + kLanes<Lanes> <= end; i += kLanes<Lanes>) {
        chains[0] += exponential(load_lanes<Lanes>(row + i) - high);
      }
      total += (chains[0] + chains[1]) + (chains[2] + chains[3]);
    }
    float sum = sum_of_lanes(total);
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

}  // namespace
}  // namespace row_lanes

void exponentials_of_rows(Workers& workers, const Matrix& matrix, float* largest, float* sums) {
  row_lanes::with_type(matrix, [&](const auto* numbers) {
    row_lanes::run_ranges(workers, matrix.rows, matrix.columns, [&](int64_t start, int64_t rows) {
      with_widest_lanes(row_lanes::ExponentialsOfRows<std::remove_cvref_t<decltype(*numbers)>>{
          numbers + start * matrix.columns, rows, matrix.columns, largest + start, sums + start});
    });
  });
}

void softmax_of_rows(Workers& workers, const Matrix& matrix, bool zero_if_masked, void* results) {
  const int64_t columns = matrix.columns;
  row_lanes::with_type(matrix, [&](const auto* numbers) {
    using T = std::remove_cvref_t<decltype(*numbers)>;
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
  row_lanes::with_type(gradient, [&](const auto* numbers) {
    using T = std::remove_cvref_t<decltype(*numbers)>;
    row_lanes::run_ranges(workers, gradient.rows, columns, [&](int64_t start, int64_t rows) {
      const int64_t first = start * columns;
      with_widest_lanes(row_lanes::SoftmaxGradientOfRows<T>{
          numbers + first, static_cast<const T*>(softmax.numbers) + first, rows, columns,
          static_cast<T*>(results) + first});
    });
  });
}

}  // namespace torch_xla
