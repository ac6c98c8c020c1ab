// Products of a few rows with a matrix, as where text is made word by word: they wait for the
// matrix's memory, and kernels made for many rows do not ask for it fast enough. Stateless; from
// any thread, on the calling one.
#pragma once

#include "ir/few_rows.h"

namespace torch_xla {

// result = beta * result + alpha * x @ y, summed in 32 bits. The rows, or the columns, of y are
// dense, and x has at most kMostFewRows.
struct FewRows {
  at::ScalarType dtype = at::kFloat;  // of all three: float, bfloat16 or half
  Factor x, y, result;
  const void *x_numbers = nullptr, *y_numbers = nullptr;
  void* result_numbers = nullptr;
  float beta = 0, alpha = 1;  // a beta of 0: whatever the result holds
};

void multiply_few_rows(const FewRows& product);

}  // namespace torch_xla
