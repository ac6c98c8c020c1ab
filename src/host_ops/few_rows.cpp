#include "host_ops/few_rows.h"

#include "host_ops/lanes.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>

namespace torch_xla {

namespace {

template <typename T>
class Multiplication {
 public:
  explicit Multiplication(const FewRows& product)
      : product_(product),
        rows_(product.x.rows),
        inner_(product.y.rows),
        columns_(product.y.columns),
        y_(static_cast<const T*>(product.y_numbers)),
        x_(std::make_unique_for_overwrite<float[]>(static_cast<size_t>(rows_ * inner_))) {
    const auto* x = static_cast<const T*>(product.x_numbers);
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t k = 0; k < inner_; ++k) {
        x_[static_cast<size_t>(row * inner_ + k)] =
            static_cast<float>(x[row * product.x.row_step + k * product.x.column_step]);
      }
    }
  }

  template <typename Lanes>
  TORCH_XLA_INLINE void run() const {
    if (product_.y.row_step == 1) {
      sum_along_columns<Lanes>();
    } else {
      add_rows<Lanes>();
    }
  }

 private:
  void write(int64_t row, int64_t column, float sum) const {
    T& result = static_cast<T*>(product_.result_numbers)[row * product_.result.row_step +
                                                         column * product_.result.column_step];
    const float before = product_.beta == 0 ? 0 : product_.beta * static_cast<float>(result);
    result = static_cast<T>(before + product_.alpha * sum);
  }

  const float* row_of_x(int64_t row) const { return x_.get() + row * inner_; }

  // The matrix lies column by column: each gives a number for each row of x.
  template <typename Lanes>
  TORCH_XLA_INLINE void sum_along_columns() const {
    int64_t column = 0;
    for (; column + kAtOnce <= columns_; column += kAtOnce) {
      int64_t row = 0;
      for (; row + 4 <= rows_; row += 4) {
        sum_columns<Lanes, 4>(row, column);
      }
      for (; row + 2 <= rows_; row += 2) {
        sum_columns<Lanes, 2>(row, column);
      }
      if (row < rows_) {
        sum_columns<Lanes, 1>(row, column);
      }
    }
    for (; column < columns_; ++column) {
      for (int64_t row = 0; row < rows_; ++row) {
        sum_block<Lanes, 1, 1>(row, column);
      }
    }
  }

  template <typename Lanes, int64_t kRows>
  TORCH_XLA_INLINE void sum_columns(int64_t row, int64_t column) const {
    constexpr int64_t kSums = kLanes<Lanes> == kMostLanes ? 16 : 8;  // that registers hold
    constexpr int64_t kColumns = std::min(kSums / kRows, kAtOnce);
    for (int64_t end = column + kAtOnce; column < end; column += kColumns) {
      sum_block<Lanes, kRows, kColumns>(row, column);
    }
  }

  template <typename Lanes, int64_t kRows, int64_t kColumns>
  TORCH_XLA_INLINE void sum_block(int64_t row, int64_t column) const {
    const int64_t next = product_.y.column_step;
    const T* y = y_ + column * next;
    const float* x = row_of_x(row);
    Lanes sums[kRows][kColumns] = {};
    int64_t k = 0;
    for (; k + kLanes<Lanes> <= inner_; k += kLanes<Lanes>) {
      Lanes factors[kRows];
#pragma GCC unroll 8
      for (int64_t r = 0; r < kRows; ++r) {
        factors[r] = load_lanes<Lanes>(x + r * inner_ + k);
      }
#pragma GCC unroll 8
      for (int64_t c = 0; c < kColumns; ++c) {
        __builtin_prefetch(y + (c + kAtOnce) * next + k);
        const Lanes numbers = load_lanes<Lanes>(y + c * next + k);
#pragma GCC unroll 8
        for (int64_t r = 0; r < kRows; ++r) {
          sums[r][c] += numbers * factors[r];
        }
      }
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int64_t c = 0; c < kColumns; ++c) {
        float sum = across<Summed>(sums[r][c]);
        for (int64_t rest = k; rest < inner_; ++rest) {
          sum += x[r * inner_ + rest] * static_cast<float>(y[c * next + rest]);
        }
        write(row + r, column + c, sum);
      }
    }
  }

  // The matrix lies row by row: each adds to all numbers of the result.
  template <typename Lanes>
  TORCH_XLA_INLINE void add_rows() const {
    float sums[kMostFewRows * kBlock];
    for (int64_t start = 0; start < columns_; start += kBlock) {
      const int64_t width = std::min(kBlock, columns_ - start);
      std::fill_n(sums, rows_ * kBlock, 0.0f);
      int64_t k = 0;
      for (; k + kAtOnce <= inner_; k += kAtOnce) {
        add_block<Lanes, kAtOnce>(k, start, width, sums);
      }
      for (; k < inner_; ++k) {
        add_block<Lanes, 1>(k, start, width, sums);
      }
      for (int64_t row = 0; row < rows_; ++row) {
        for (int64_t i = 0; i < width; ++i) {
          write(row, start + i, sums[row * kBlock + i]);
        }
      }
    }
  }

  template <typename Lanes, int64_t kCount>
  TORCH_XLA_INLINE void add_block(int64_t k, int64_t start, int64_t width, float* sums) const {
    const int64_t next = product_.y.row_step;
    const T* y = y_ + k * next + start;
    const float* factors = x_.get() + k;
    int64_t i = 0;
    for (; i + kLanes<Lanes> <= width; i += kLanes<Lanes>) {
      Lanes numbers[kCount];
#pragma GCC unroll 8
      for (int64_t r = 0; r < kCount; ++r) {
        numbers[r] = load_lanes<Lanes>(y + r * next + i);
      }
      for (int64_t row = 0; row < rows_; ++row) {
        Lanes sum = load_lanes<Lanes>(sums + row * kBlock + i);
#pragma GCC unroll 8
        for (int64_t r = 0; r < kCount; ++r) {
          sum += numbers[r] * factors[row * inner_ + r];
        }
        store_lanes(sums + row * kBlock + i, sum);
      }
    }
    for (; i < width; ++i) {
      for (int64_t row = 0; row < rows_; ++row) {
        for (int64_t r = 0; r < kCount; ++r) {
          sums[row * kBlock + i] += static_cast<float>(y[r * next + i]) * factors[row * inner_ + r];
        }
      }
    }
  }

  // Rows or columns of the matrix, and columns of sums: of these the nearest cache holds as many.
  static constexpr int64_t kAtOnce = 8, kBlock = 1024;

  const FewRows& product_;
  const int64_t rows_, inner_, columns_;
  const T* y_;
  std::unique_ptr<float[]> x_;  // dense, in 32 bits
};

}  // namespace

void multiply_few_rows(const FewRows& product) {
  TORCH_CHECK(product.x.rows <= kMostFewRows && product.y.has_dense_lines(),
              "not a product of few rows");
  const bool known = with_lane_type(product.dtype, [&]<typename T>(std::type_identity<T>) {
    with_widest_lanes(Multiplication<T>(product));
  });
  TORCH_CHECK(known, "expected float, bfloat16 or half, not ", product.dtype);
}

}  // namespace torch_xla
