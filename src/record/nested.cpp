// Nested tensors of layout torch.strided are memory that PyTorch addresses itself: there are none
// on this device. Those of layout torch.jagged are made of its tensors, and work.
#include "record/registration.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/ops/_nested_tensor_from_tensor_list_native.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

constexpr const char* kSentence =
    "the xla device has no nested tensors of layout torch.strided: make them with "
    "layout=torch.jagged, or pad them with torch.nested.to_padded_tensor on the CPU";

void refuse(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, kSentence, " (in ", op.operator_name(), ")");
}

// Whether a mask could become lengths: nn.TransformerEncoder asks before it asks for the device.
bool is_left_aligned(const at::Tensor& /*x*/, const at::Tensor& /*mask*/) { return false; }

// Of CPU tensors, for a device.
at::Tensor make_on_cpu(at::TensorList list, std::optional<at::ScalarType> dtype,
                       std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                       std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!device || device->type() != c10::DeviceType::XLA, kSentence);
  return at::native::_nested_tensor_from_tensor_list(list, dtype, layout, device, pin_memory);
}

TORCH_LIBRARY_IMPL(_, NestedTensorXLA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("_nested_tensor_from_tensor_list", &make_on_cpu); }

}  // namespace

void register_nested_tensors(torch::Library& m) {
  for (const char* maker : {"_nested_tensor_from_tensor_list", "_nested_tensor_from_mask",
                            "_nested_from_padded", "_nested_view_from_buffer"}) {
    m.impl(maker, torch::CppFunction::makeFromBoxedFunction<&refuse>());
  }
  m.impl("_nested_tensor_from_mask_left_aligned", &is_left_aligned);
}

}  // namespace torch_xla
