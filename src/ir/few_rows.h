// Products of a few rows, or a few columns, with a large matrix, which a kernel of ours computes
// (host_ops/few_rows.h). Stateless.
#pragma once

#include "base/processor.h"

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstdint>

namespace torch_xla {

// A factor of a product, and how far it is from one of its rows, or columns, to the next.
struct Factor {
  int64_t rows, columns, row_step, column_step;

  // Of each batch, if there are several. A vector is a column.
  static Factor of(c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides) {
    if (sizes.size() == 1) {
      return {sizes[0], 1, strides[0], 1};
    }
    const size_t column = sizes.size() - 1, row = column - 1;
    return {sizes[row], sizes[column], strides[row], strides[column]};
  }
  bool has_dense_lines() const { return row_step == 1 || column_step == 1; }
  Factor transposed() const { return {columns, rows, column_step, row_step}; }
};

inline constexpr int64_t kMostFewRows = 8, kLargeFactor = 1 << 17;

// "Products of few rows" in docs/measurements.md.
inline bool is_of_few_rows(c10::ScalarType dtype, const Factor& x, const Factor& y) {
  constexpr int64_t kLeast = 16, kMostOfBFloat16 = 4;
  // oneDNN's are better for more rows than that, where the matrix lies as its instructions read it.
  const bool has_instructions =
      dtype == c10::ScalarType::BFloat16 && y.row_step == 1 && processor::multiplies_bfloat16();
  return x.rows >= 1 && x.rows <= (has_instructions ? kMostOfBFloat16 : kMostFewRows) &&
         std::min(y.rows, y.columns) >= kLeast && y.rows * y.columns >= kLargeFactor &&
         y.has_dense_lines();
}

// Whether x @ y has so few rows, or columns, that the kernel is better than others.
inline bool is_of_few(c10::ScalarType dtype, const Factor& x, const Factor& y) {
  const bool is_known = dtype == c10::ScalarType::Float || c10::isReducedFloatingType(dtype);
  return is_known &&
         (is_of_few_rows(dtype, x, y) || is_of_few_rows(dtype, y.transposed(), x.transposed()));
}

}  // namespace torch_xla
