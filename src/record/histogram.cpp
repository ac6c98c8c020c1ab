// histc of integers, which PyTorch's CPU kernel refuses and programs for accelerators rely on.
#include "record/recorder.h"
#include "record/registration.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/histc.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

using at::Tensor;

Tensor histc(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  TORCH_CHECK(min.toDouble() <= max.toDouble(), "torch.histc: max must be larger than min");
  at::AutoDispatchBelowADInplaceOrView guard;
  if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    return at::histc(self.to(at::kDouble), bins, min, max).to(self.scalar_type());
  }
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::histc", "");
  torch::jit::Stack stack{self, bins, min, max};
  record_fallback(op, &stack);
  return stack[0].toTensor();
}

}  // namespace

void register_histogram(torch::Library& m) { m.impl("histc", &histc); }

}  // namespace torch_xla
