// PyTorch runs backward passes of a device on a thread of its own, which lets go of the gradients
// it returned a moment after the caller has them.
#pragma once

namespace torch_xla {

// Returns once the devices' autograd threads have let go of everything: to be called before the
// Python interpreter ends, which those references need. Does nothing if no device was used.
void drain_autograd_threads();

}  // namespace torch_xla
