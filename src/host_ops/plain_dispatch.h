// How CPU kernels are called for the device.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_xla {

// Below every kernel that looks at the kind of a tensor or at a mode of the calling thread:
// autograd and autocast have had their turn when the operation was recorded.
class PlainDispatch {
 public:
  PlainDispatch() : others_(c10::autocast_dispatch_keyset | modes()) {}

 private:
  static c10::DispatchKeySet modes() {
    return c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                c10::DispatchKey::PythonDispatcher, c10::DispatchKey::PreDispatch,
                                c10::DispatchKey::Functionalize});
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard others_;
};

}  // namespace torch_xla
