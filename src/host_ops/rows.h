// What XLA-CPU does to matrices a number at a time, with the processor's vectors: sums of rows and
// of columns, the extremes of each row. Stateless; from any thread.
#pragma once

#include "host_ops/workers.h"

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace torch_xla {

// A dense matrix of float, bfloat16 or half.
struct Matrix {
  const void* numbers = nullptr;
  at::ScalarType dtype = at::kFloat;
  int64_t rows = 0, columns = 0;
};

// One for each row, however few and long they are. Where a row has NaN, it is the extreme. `places`
// (null: not asked for) are those of the first such number; columns are counted by int32 then.
void sums_of_rows(Workers& workers, const Matrix& matrix, float* sums);
void squares_of_rows(Workers& workers, const Matrix& matrix, float* sums);  // sums of squares
// `squares`: sums of the squares of what lies off the row's mean.
void moments_of_rows(Workers& workers, const Matrix& matrix, float* means, float* squares);
// Of each row of a norm's gradient: its sum, and that of its products with what lies off `means`.
void gradient_sums_of_rows(Workers& workers, const Matrix& gradient, const Matrix& input,
                           const float* means, float* sums, float* products);
void largest_of_rows(Workers& workers, const Matrix& matrix, float* largest, int32_t* places);
void smallest_of_rows(Workers& workers, const Matrix& matrix, float* smallest, int32_t* places);

// The same of each column; there is at least one row. Sums are those of so many parts of the rows.
void sums_of_columns(Workers& workers, const Matrix& matrix, float* sums, int64_t parts = 1);
void moments_of_columns(Workers& workers, const Matrix& matrix, float* means, float* squares);
void gradient_sums_of_columns(Workers& workers, const Matrix& gradient, const Matrix& input,
                              const float* means, float* sums, float* products);

}  // namespace torch_xla
