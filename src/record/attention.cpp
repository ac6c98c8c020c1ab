// Attention. PyTorch composes it of matrix products on any device, but on the CPU calls a kernel
// that never has all scores in memory: so do we where it can run, if PyTorch would for the CPU.
#include "record/cpu_forms.h"
#include "record/registration.h"

#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <limits>

namespace torch_xla {

namespace {

using at::Tensor;

constexpr int64_t kFlash = 1;  // of PyTorch's kinds of attention

struct Attention {
  const Tensor &query, &key, &value;
  const std::optional<Tensor>& mask;
  double dropout;
  bool causal;
  std::optional<double> scale;
  bool grouped;
};

// On the CPU, without memory: who chooses looks at sizes, strides and dtypes.
Tensor stand_in(const Tensor& tensor) {
  c10::Storage nothing(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::kCPU),
                       nullptr, /*resizable=*/false);
  Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(nothing), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return result.set_requires_grad(tensor.requires_grad());
}

bool is_flash_on_the_cpu(const Attention& call) {
  const bool masked = call.mask && call.mask->defined();
  if (!takes_cpu_form({call.query, call.key, call.value}) ||
      (masked && !takes_cpu_form({*call.mask}))) {
    return false;
  }
  for (const Tensor* tensor : {&call.query, &call.key, &call.value}) {
    if (tensor->numel() == 0) {
      return false;  // PyTorch answers before it chooses
    }
  }
  c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
  return at::_fused_sdp_choice(stand_in(call.query), stand_in(call.key), stand_in(call.value),
                               masked ? std::optional(stand_in(*call.mask)) : std::nullopt,
                               call.dropout, call.causal, call.scale, call.grouped) == kFlash;
}

// Where a mask of truths is false nothing is seen.
std::optional<Tensor> as_summand(const std::optional<Tensor>& mask, at::ScalarType dtype) {
  if (!mask || !mask->defined() || mask->scalar_type() != at::kBool) {
    return mask;
  }
  const at::TensorOptions options = mask->options().dtype(dtype);
  return at::where(*mask, at::zeros({}, options),
                   at::full({}, -std::numeric_limits<double>::infinity(), options));
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const std::optional<Tensor>& mask, double dropout, bool causal,
                 std::optional<double> scale, bool grouped) {
  if (is_flash_on_the_cpu({query, key, value, mask, dropout, causal, scale, grouped})) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout, causal, as_summand(mask, query.scalar_type()), scale));
  }
  return at::native::scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale,
                                                  grouped);
}

// Composed of differentiable parts.
TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { m.impl("scaled_dot_product_attention", &attention); }

}  // namespace

void register_attention(torch::Library& m) { m.impl("scaled_dot_product_attention", &attention); }

}  // namespace torch_xla
