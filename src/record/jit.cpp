// torch.jit.trace records what a convolution is made of, the operator _convolution: on this device
// a convolution is made of that too while it traces.
#include "record/recorder.h"
#include "record/registration.h"

#include <ATen/TracerMode.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

constexpr size_t kBackendFlags = 4;  // of cuDNN: benchmark, deterministic, enabled, TF32

c10::OperatorHandle operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

void run_convolution(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!at::tracer::impl::is_dispatch_enabled()) {
    record_fallback(op, stack);
    return;
  }
  stack->insert(stack->end(), kBackendFlags, c10::IValue(false));
  static const c10::OperatorHandle traced = operator_named("aten::_convolution");
  traced.callBoxed(stack);
}

void run_traced_convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, kBackendFlags);
  static const c10::OperatorHandle plain = operator_named("aten::convolution");
  record_fallback(plain, stack);
}

}  // namespace

void register_traced_convolutions(torch::Library& m) {
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&run_convolution>());
  m.impl("_convolution", torch::CppFunction::makeFromBoxedFunction<&run_traced_convolution>());
}

}  // namespace torch_xla
