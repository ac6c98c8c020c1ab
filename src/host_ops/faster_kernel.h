// PyTorch's kernels, or what computes the same in less time. Products, convolutions and attention
// of 16-bit floats take up to a hundred times as long as those of 32 bits where the processor has
// no instructions for them: there they are called in 32 bits, and their results rounded. Products
// of few rows (few_rows.h; of 32 bits where no gradients are wanted) and pools of images
// (own_pool.h) are ours. Thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_xla {

struct FasterKernel;

// Whether products of such numbers are better computed in 32 bits.
bool is_better_widened(at::ScalarType dtype);

// How the operator is called faster; null if it never is.
const FasterKernel* faster_kernel(const c10::OperatorHandle& op);

// Whether that may be so for a call with such a tensor.
bool may_be_faster(const FasterKernel& kernel, const at::TensorBase& tensor);

// Calls the operator faster if that is so with these arguments; else false, and nothing was done.
// `kernel`: of this operator, or null. Copies of large factors are made in parts.
bool call_faster(const c10::OperatorHandle& op, const FasterKernel* kernel,
                 torch::jit::Stack& stack);

// Calls the operator as callBoxed() would, or faster.
void call_kernel(const c10::OperatorHandle& op, const FasterKernel* kernel,
                 torch::jit::Stack& stack);

}  // namespace torch_xla
