// PyTorch's linear layer multiplies and adds in one operator, except on this device, where inputs
// without rows become a product whose dimension is taken away in place: torch.func.linearize keeps
// the product as a constant, and would do that to it at each call.
#include <ATen/ops/addmm.h>
#include <ATen/ops/linear_native.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  const bool has_bias = bias && bias->defined() && bias->dim() == 1;
  return has_bias && input.dim() == 1 && weight.dim() == 2
             ? at::addmm(*bias, input.unsqueeze(0), weight.t()).squeeze(0)
             : at::native::linear(input, weight, bias);
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { m.impl("linear", &linear); }

}  // namespace

}  // namespace torch_xla
