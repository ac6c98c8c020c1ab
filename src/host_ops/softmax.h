// Softmax of the rows of a matrix, or what its logarithm has to know of them. Stateless; from any
// thread.
#pragma once

#include "host_ops/rows.h"

namespace torch_xla {

// The largest number of each row, and the sum of the exponentials of how far all lie below it.
void exponentials_of_rows(Workers& workers, const Matrix& matrix, float* largest, float* sums);

// In the matrix's type. `zero_if_masked`: a row of nothing but -inf gives zeros, not NaN.
void softmax_of_rows(Workers& workers, const Matrix& matrix, bool zero_if_masked, void* results);
// `gradient` of the softmax, of the same type, to that of what it was of.
void softmax_gradient_of_rows(Workers& workers, const Matrix& gradient, const Matrix& softmax,
                              void* results);

}  // namespace torch_xla
