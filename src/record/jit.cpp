// torch.jit.trace records what a convolution is made of, the operator _convolution: on this device
// a convolution is made of that too while it traces.
#include "record/recorder.h"
#include "record/registration.h"
#include "record/unboxed_kernel.h"

#include <ATen/TracerMode.h>
#include <ATen/ops/_convolution.h>
#include <ATen/ops/convolution.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

constexpr size_t kBackendFlags = 4;  // of cuDNN: benchmark, deterministic, enabled, TF32

c10::OperatorHandle operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                       c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  if (at::tracer::impl::is_dispatch_enabled()) {
    return at::_ops::_convolution::call(input, weight, bias, stride, padding, dilation, transposed,
                                        output_padding, std::move(groups), false, false, false,
                                        false);
  }
  static RecordedOperator plain(operator_named("aten::convolution"));
  return unboxed::Kernel<at::_ops::convolution>::run(plain.info(), input, weight, bias, stride,
                                                     padding, dilation, transposed, output_padding,
                                                     std::move(groups));
}

void run_traced_convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, kBackendFlags);
  static const c10::OperatorHandle plain = operator_named("aten::convolution");
  record_fallback(plain, stack);
}

}  // namespace

void register_traced_convolutions(torch::Library& m) {
  m.impl("convolution", &convolution);
  m.impl("_convolution", torch::CppFunction::makeFromBoxedFunction<&run_traced_convolution>());
}

}  // namespace torch_xla
