// Products, convolutions and attention of 16-bit floats take PyTorch's kernels up to a hundred
// times as long as those of 32 bits where the processor has no instructions for them: there they
// are called in 32 bits, and their results rounded. Thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_xla {

struct WidenedKernel;

// Whether products of such numbers are better computed in 32 bits.
bool is_better_widened(at::ScalarType dtype);

// How the operator is called so; null if it never is.
const WidenedKernel* widened_kernel(const c10::OperatorHandle& op);

// Calls the operator in 32 bits if that is faster with these arguments; else false, and nothing was
// done. `kernel`: of this operator, or null. Copies of large factors are made in parts.
bool call_widened(const c10::OperatorHandle& op, const WidenedKernel* kernel,
                  torch::jit::Stack& stack);

// Calls the operator as callBoxed() would, in 32 bits where that is faster.
void call_kernel(const c10::OperatorHandle& op, const WidenedKernel* kernel,
                 torch::jit::Stack& stack);

}  // namespace torch_xla
