// Derivatives that are not a backward pass. Any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_xla {

// Forward-mode derivatives and functorch's transformations have PyTorch's formulas, not ours.
inline bool is_transformed(const at::Tensor& input) {
  const c10::DispatchKeySet included = c10::impl::tls_local_dispatch_key_set().included_;
  return included.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         input._fw_grad(/*level=*/0).defined();
}

}  // namespace torch_xla
