// Shared by the activation*.cpp files.
#pragma once

#include "lower/expr.h"
#include "lower/table.h"

namespace torch_xla {

// The dtype in which ATen computes element-wise: 16-bit floats widen to f32 and are rounded once,
// at the end.
DType compute_dtype(DType dtype);

// Tensor or number argument in the compute dtype of output 0.
Expr operand(LowerContext& c, size_t i);
Expr scalar(LowerContext& c, size_t i);
// Sets an output, rounded to its dtype.
void finish(LowerContext& c, Expr value, size_t output = 0);

void register_loss(LowerTable& table);  // part of register_activation

}  // namespace torch_xla
