#include "host_ops/widened.h"

#include "base/processor.h"

#include <ATen/Tensor.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace torch_xla {

struct WidenedKernel {
  std::string_view op;
  int left = -1;         // argument that is the left factor of a product, or -1
  size_t rounded = 1;    // how many of the results; others have 32 bits anyway
  bool bfloat16 = true;  // PyTorch's kernel is slow for it, too, not only for float16
  bool mixed = false;    // takes tensors of 32 bits beside
};

namespace {

// `python benchmarks/operators.py --dtypes bf16 f16` shows them.
constexpr std::array kKernels = {
    WidenedKernel{"aten::mm", 0},
    WidenedKernel{"aten::bmm", 0},
    WidenedKernel{"aten::addmm", 1},
    WidenedKernel{"aten::baddbmm", 1},
    WidenedKernel{"aten::convolution"},
    WidenedKernel{"aten::convolution_backward", -1, 3},
    WidenedKernel{"aten::_scaled_dot_product_flash_attention_for_cpu", -1, 1, false, true},
    WidenedKernel{"aten::_scaled_dot_product_flash_attention_for_cpu_backward", -1, 3, true, true},
};

bool is_given(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

at::ScalarType dtype_of(const torch::jit::Stack& arguments) {
  const auto tensor = std::find_if(arguments.begin(), arguments.end(), is_given);
  return tensor == arguments.end() ? at::kFloat : tensor->toTensor().scalar_type();
}

bool all_are(at::ScalarType dtype, const torch::jit::Stack& arguments) {
  return std::all_of(arguments.begin(), arguments.end(), [&](const c10::IValue& value) {
    return !is_given(value) || value.toTensor().scalar_type() == dtype;
  });
}

// PyTorch reads each factor of a product a number at a time, which is faster than converting all
// of them where there are few: a few rows times weights that lie as the rows do.
bool is_worth_converting(const at::Tensor& x, const at::Tensor& y) {
  constexpr int64_t kMultiplications = 1 << 16, kFewRows = 3;
  if (x.dim() < 2 || y.dim() != x.dim() || x.numel() * y.size(-1) < kMultiplications) {
    return false;
  }
  return x.size(-2) > kFewRows || y.stride(-2) != 1;
}

void convert(c10::IValue& value, at::ScalarType from, at::ScalarType to) {
  if (is_given(value) && value.toTensor().scalar_type() == from) {
    value = value.toTensor().to(to);
  }
}

}  // namespace

bool is_better_widened(at::ScalarType dtype) {
  return (dtype == at::kHalf && !processor::has_kernels_of_half()) ||
         (dtype == at::kBFloat16 && !processor::has_kernels_of_bfloat16());
}

const WidenedKernel* widened_kernel(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const auto found =
      std::find_if(kKernels.begin(), kKernels.end(), [&](const WidenedKernel& known) {
        return known.op == name.name && name.overload_name.empty();
      });
  return found == kKernels.end() ? nullptr : &*found;
}

bool is_better_widened(const WidenedKernel& kernel, const torch::jit::Stack& arguments) {
  const at::ScalarType dtype = dtype_of(arguments);
  if (!is_better_widened(dtype) || (dtype == at::kBFloat16 && !kernel.bfloat16) ||
      (!kernel.mixed && !all_are(dtype, arguments))) {
    return false;
  }
  return kernel.left < 0 || is_worth_converting(arguments[kernel.left].toTensor(),
                                                arguments[kernel.left + 1].toTensor());
}

void call_kernel(const c10::OperatorHandle& op, const WidenedKernel* kernel,
                 torch::jit::Stack& stack) {
  if (kernel == nullptr || !is_better_widened(*kernel, stack)) {
    op.callBoxed(&stack);
    return;
  }
  const at::ScalarType dtype = dtype_of(stack);
  for (c10::IValue& argument : stack) {
    convert(argument, dtype, at::kFloat);
  }
  op.callBoxed(&stack);
  for (size_t i = 0; i < kernel->rounded; ++i) {
    convert(stack[i], at::kFloat, dtype);
  }
}

}  // namespace torch_xla
