#include "record/cpu_forms.h"

#include "eager/mode.h"
#include "host_ops/host_ops.h"
#include "sharding/spmd.h"
#include "trace/tensor.h"

#include <algorithm>

namespace torch_xla {

bool takes_cpu_form(at::TensorList tensors) {
  auto is_known = [](const at::Tensor& tensor) {
    return tensor.device().type() == c10::DeviceType::XLA &&
           !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  };
  if (!std::all_of(tensors.begin(), tensors.end(), is_known)) {
    return false;
  }
  return eager::mode() == eager::Mode::Host || (!spmd_enabled() && host_calls_available());
}

}  // namespace torch_xla
