#include "host_ops/faster_kernel.h"

#include "base/processor.h"
#include "host_ops/own_pool.h"
#include "host_ops/product.h"
#include "ir/few_rows.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

namespace torch_xla {

using at::Tensor;
using torch::jit::Stack;

struct FasterKernel {
  std::string_view op;
  int left = -1;         // argument that is the left factor of a product, or -1
  size_t rounded = 1;    // how many of the results; others have 32 bits anyway
  bool bfloat16 = true;  // PyTorch's kernel is slow for it, too, not only for float16
  bool mixed = false;    // takes tensors of 32 bits beside
  bool pool = false;     // ours, and nothing of the above
};

namespace {

// `python benchmarks/operators.py --dtypes bf16 f16` shows them.
constexpr std::array kKernels = {
    FasterKernel{"aten::mm", 0},
    FasterKernel{"aten::bmm", 0},
    FasterKernel{"aten::mv", 0},
    FasterKernel{"aten::addmv", 1},
    FasterKernel{"aten::addmm", 1},
    FasterKernel{"aten::baddbmm", 1},
    FasterKernel{"aten::convolution"},
    FasterKernel{"aten::convolution_backward", -1, 3},
    FasterKernel{"aten::_scaled_dot_product_flash_attention_for_cpu", -1, 1, false, true},
    FasterKernel{"aten::_scaled_dot_product_flash_attention_for_cpu_backward", -1, 3, true, true},
    FasterKernel{.op = "aten::max_pool2d_with_indices", .pool = true},
    FasterKernel{.op = "aten::avg_pool2d", .pool = true},
    FasterKernel{.op = "aten::avg_pool2d_backward", .pool = true},
};

bool is_tensor(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

at::ScalarType dtype_of(const Stack& arguments) {
  const auto tensor = std::find_if(arguments.begin(), arguments.end(), is_tensor);
  return tensor == arguments.end() ? at::kFloat : tensor->toTensor().scalar_type();
}

bool all_are(at::ScalarType dtype, const Stack& arguments) {
  return std::all_of(arguments.begin(), arguments.end(), [&](const c10::IValue& value) {
    return !is_tensor(value) || value.toTensor().scalar_type() == dtype;
  });
}

// PyTorch reads each factor of a product a number at a time, which is faster than converting all
// of them where there are few: a few rows times weights that lie as the rows do.
bool is_worth_converting(const Tensor& x, const Tensor& y) {
  constexpr int64_t kMultiplications = 1 << 16, kFewRows = 3;
  if (x.dim() < 2 || y.dim() != x.dim() || x.numel() * y.size(-1) < kMultiplications) {
    return false;
  }
  return x.size(-2) > kFewRows || y.stride(-2) != 1;
}

void convert(c10::IValue& value, at::ScalarType from, at::ScalarType to) {
  if (is_tensor(value) && value.toTensor().scalar_type() == from) {
    value = value.toTensor().to(to);
  }
}

bool is_faster_widened(const FasterKernel& kernel, const Stack& arguments) {
  const at::ScalarType dtype = dtype_of(arguments);
  if (!is_better_widened(dtype) || (dtype == at::kBFloat16 && !kernel.bfloat16) ||
      (!kernel.mixed && !all_are(dtype, arguments))) {
    return false;
  }
  return kernel.left < 0 || is_worth_converting(arguments[kernel.left].toTensor(),
                                                arguments[kernel.left + 1].toTensor());
}

void call_in_32_bits(const c10::OperatorHandle& op, Stack& stack) {
  const at::ScalarType dtype = dtype_of(stack);
  for (c10::IValue& argument : stack) {
    convert(argument, dtype, at::kFloat);
  }
  op.callBoxed(&stack);
}

// Of few rows, or in 32 bits. There a large product, a vocabulary's for instance, is computed in
// parts: whole factors in 32 bits would take twice the memory of the weights.
class Product {
 public:
  Product(const c10::OperatorHandle& op, const FasterKernel& kernel)
      : op_(op), kernel_(kernel), left_(static_cast<size_t>(kernel.left)) {}

  // None: the operator's kernel is to be called.
  std::optional<Tensor> run(const Stack& arguments) const {
    if (is_of_few_rows(arguments) && takes_summand(arguments)) {
      return run_few_rows(arguments);
    }
    if (is_faster_widened(kernel_, arguments) && !is_small(arguments) && is_valid(arguments)) {
      Tensor result = empty_result(arguments);
      write(arguments, result);
      return result;
    }
    return std::nullopt;
  }

 private:
  bool is_small(const Stack& arguments) const {
    constexpr int64_t kNumbers = 1 << 24;
    const Tensor &x = left_factor(arguments), &y = right_factor(arguments);
    return x.numel() + y.numel() + c10::multiply_integers(result_sizes(x, y)) <= kNumbers;
  }

  // Whether PyTorch will take the arguments; what it refuses is for it to say.
  bool is_valid(const Stack& arguments) const {
    const Tensor &x = left_factor(arguments), &y = right_factor(arguments);
    return x.size(-1) == y.size(-2) && (x.dim() == 2 || x.size(0) == y.size(0)) &&
           takes_summand(arguments);
  }
  bool takes_summand(const Stack& arguments) const {
    return left_ == 0 ||
           at::is_expandable_to(arguments[0].toTensor().sizes(),
                                result_sizes(left_factor(arguments), right_factor(arguments)));
  }

  bool is_of_few_rows(const Stack& arguments) const {
    const at::ScalarType dtype = left_factor(arguments).scalar_type();
    // In 32 bits training keeps the bits of PyTorch's kernels.
    return (dtype != at::kFloat || !at::GradMode::is_enabled()) &&
           are_of_few_rows(left_factor(arguments), right_factor(arguments)) &&
           all_are(dtype, arguments);
  }

  // With PyTorch's threads.
  Tensor run_few_rows(const Stack& arguments) const {
    Tensor result = empty_result(arguments);
    const std::vector<CallPiece> pieces = divide(op_, arguments, at::get_num_threads());
    if (pieces.empty()) {
      write_product_of_few_rows(arguments, result);
      return result;
    }
    run_in_team(pieces, result);
    return result;
  }

  const Tensor& left_factor(const Stack& arguments) const { return arguments[left_].toTensor(); }
  const Tensor& right_factor(const Stack& arguments) const {
    return arguments[left_ + 1].toTensor();
  }

  Tensor empty_result(const Stack& arguments) const {
    const Tensor& x = left_factor(arguments);
    return at::empty(result_sizes(x, right_factor(arguments)), x.options());
  }

  static std::vector<int64_t> result_sizes(const Tensor& x, const Tensor& y) {
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.pop_back();
    if (y.dim() > 1) {
      sizes.push_back(y.size(-1));
    }
    return sizes;
  }

  // Halves the result's longest dimension, counted from the last, until what it takes is small.
  void write(const Stack& arguments, const Tensor& result) const {
    const auto longest = std::max_element(result.sizes().rbegin(), result.sizes().rend());
    const int64_t half = *longest / 2;
    if (half == 0 || is_small(arguments)) {
      Stack stack = arguments;
      call_in_32_bits(op_, stack);
      result.copy_(stack[0].toTensor());
      return;
    }
    const int64_t dim = -1 - (longest - result.sizes().rbegin());
    for (const auto& [from, length] : {std::pair(int64_t{0}, half), {half, *longest - half}}) {
      write(part(arguments, dim, from, length), result.narrow(dim, from, length));
    }
  }

  Stack part(const Stack& arguments, int64_t dim, int64_t from, int64_t length) const {
    constexpr int64_t kRows = -2, kColumns = -1;
    Stack part = arguments;
    auto narrow = [&](size_t i) {
      const Tensor whole = arguments[i].toTensor();
      if (whole.dim() >= -dim && whole.size(dim) > 1) {
        part[i] = whole.narrow(dim, from, length);
      }
    };
    if (left_ == 1) {
      narrow(0);
    }
    if (dim != kColumns) {
      narrow(left_);
    }
    if (dim != kRows) {
      narrow(left_ + 1);
    }
    return part;
  }

  const c10::OperatorHandle& op_;
  const FasterKernel& kernel_;
  const size_t left_;
};

}  // namespace

bool is_better_widened(at::ScalarType dtype) {
  return (dtype == at::kHalf && !processor::has_kernels_of_half()) ||
         (dtype == at::kBFloat16 && !processor::has_kernels_of_bfloat16());
}

const FasterKernel* faster_kernel(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const auto found = std::find_if(kKernels.begin(), kKernels.end(), [&](const FasterKernel& known) {
    return known.op == name.name && name.overload_name.empty();
  });
  return found == kKernels.end() ? nullptr : &*found;
}

bool may_be_faster(const FasterKernel& kernel, const at::TensorBase& tensor) {
  if (kernel.pool) {
    return tensor.numel() >= kFewForOwnPool;
  }
  const bool large_factor = kernel.left >= 0 && tensor.numel() >= kLargeFactor;
  return large_factor || is_better_widened(tensor.scalar_type());
}

bool call_faster(const c10::OperatorHandle& op, const FasterKernel* kernel, Stack& stack) {
  if (kernel == nullptr) {
    return false;
  }
  if (kernel->pool) {
    return call_own_pool(op, stack);
  }
  if (kernel->left >= 0) {
    if (std::optional<Tensor> product = Product(op, *kernel).run(stack)) {
      stack.assign(1, *std::move(product));
      return true;
    }
  }
  if (!is_faster_widened(*kernel, stack)) {
    return false;
  }
  const at::ScalarType dtype = dtype_of(stack);
  call_in_32_bits(op, stack);
  for (size_t i = 0; i < kernel->rounded; ++i) {
    convert(stack[i], at::kFloat, dtype);
  }
  return true;
}

void call_kernel(const c10::OperatorHandle& op, const FasterKernel* kernel, Stack& stack) {
  if (!call_faster(op, kernel, stack)) {
    op.callBoxed(&stack);
  }
}

}  // namespace torch_xla
