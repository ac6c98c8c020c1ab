// Products of groups of rows with a matrix each (mixtures of experts). PyTorch composes them in a
// loop that reads on the host where each group ends: a wait in each layer, and a new program
// whenever the groups change. The recorded operator is one of ours that takes the ends as a value.
// It has no meta kernel, because PyTorch's knows 16 bits only: plans ask the CPU's.
#include "record/recorder.h"
#include "record/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_grouped_mm.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor record_grouped_mm(const Tensor& x, const Tensor& y, const OptionalTensor& ends,
                         const OptionalTensor& bias, std::optional<at::ScalarType> dtype) {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("torch_xla::grouped_mm", "");
  torch::jit::Stack stack{x, y, ends, bias, dtype};
  record_fallback(op, &stack);
  return stack[0].toTensor();
}

Tensor grouped_mm_on_cpu(const Tensor& x, const Tensor& y, const OptionalTensor& ends,
                         const OptionalTensor& bias, std::optional<at::ScalarType> dtype) {
  return at::_grouped_mm(x, y, ends, bias, dtype);
}

TORCH_LIBRARY_FRAGMENT(torch_xla, m) {
  m.def("grouped_mm(Tensor x, Tensor y, Tensor? ends, Tensor? bias, ScalarType? dtype) -> Tensor");
}

TORCH_LIBRARY_IMPL(torch_xla, CPU, m) { m.impl("grouped_mm", &grouped_mm_on_cpu); }

}  // namespace

void register_grouped_mm(torch::Library& m) { m.impl("_grouped_mm", &record_grouped_mm); }

}  // namespace torch_xla
