// torch.autocast("xla"): PyTorch's own operator lists and cast policies, those of CUDA.
#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>

namespace torch_xla {

namespace {

#define XLA_AUTOCAST_KERNEL(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__)
#define XLA_LOWER_PRECISION(...) XLA_AUTOCAST_KERNEL(__VA_ARGS__, lower_precision_fp)
#define XLA_FP32(...) XLA_AUTOCAST_KERNEL(__VA_ARGS__, fp32)
#define XLA_FP32_SET_DTYPE(...) XLA_AUTOCAST_KERNEL(__VA_ARGS__, fp32_set_opt_dtype)
#define XLA_PROMOTE(...) XLA_AUTOCAST_KERNEL(__VA_ARGS__, promote)
#define XLA_APPEND_DTYPE(...) \
  KERNEL_DIFFERENT_REDISPATCH_SIGNATURE(c10::DeviceType::XLA, __VA_ARGS__)

at::Tensor refuse_binary_cross_entropy(const at::Tensor&, const at::Tensor&,
                                       const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
              "autocast: use binary_cross_entropy_with_logits or BCEWithLogitsLoss, or leave "
              "autocast around this call");
}

TORCH_LIBRARY_IMPL(_, AutocastXLA, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastXLA, m) {
  using at::IntArrayRef;
  using at::Scalar;
  using at::ScalarType;
  using at::Tensor;
  AT_FORALL_LOWER_PRECISION_FP(XLA_LOWER_PRECISION)
  AT_FORALL_FP32(XLA_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(XLA_FP32_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(XLA_APPEND_DTYPE)
  AT_FORALL_PROMOTE(XLA_PROMOTE)
  XLA_LOWER_PRECISION(mkldnn_rnn_layer)  // as on the CPU: record/rnn.cpp
  m.impl("binary_cross_entropy", &refuse_binary_cross_entropy);
}

}  // namespace

}  // namespace torch_xla
