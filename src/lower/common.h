// Helpers of the element-wise and reduction families. Stateless.
#pragma once

#include "lower/context.h"

#include <initializer_list>
#include <utility>

namespace torch_xla {

// PyTorch's type promotion over these arguments: tensors with dimensions decide, then 0-d tensors,
// then numbers, the later only where their kind (bool, integer, float, complex) is higher.
DType promoted_dtype(const LowerContext& c, std::initializer_list<size_t> arguments);

// Tensor or number argument, converted and broadcast to the sizes of output 0.
Val broadcast_operand(LowerContext& c, size_t argument, DType dtype);

// Arguments 0 and 1 so.
std::pair<Val, Val> broadcast_pair(LowerContext& c, DType dtype);

// True where the sign bit is set: -0.0 and NaNs of that sign included.
Val sign_bit(Builder& b, Val x);

}  // namespace torch_xla
