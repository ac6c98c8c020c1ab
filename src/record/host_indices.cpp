#include "record/host_indices.h"

#include "trace/tensor.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/aminmax.h>

namespace torch_xla {

namespace {

bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

void check(const at::Tensor& index, const at::Tensor& self, int64_t dim) {
  if (!index.device().is_cpu() || index.numel() == 0 || dim >= self.dim()) {
    return;
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  const auto [low, high] = at::aminmax(index);
  const int64_t size = self.size(dim);
  for (int64_t value : {low.item<int64_t>(), high.item<int64_t>()}) {
    TORCH_CHECK_INDEX(-size <= value && value < size, "index ", value,
                      " is out of bounds for dimension ", dim, " with size ", size);
  }
}

// x[i, j, ...]: a mask is an index for as many dimensions as it has.
void check_list(const at::Tensor& self, const c10::IValue& indices) {
  int64_t dim = 0;
  for (const c10::IValue& element : indices.toListRef()) {
    const at::Tensor index = element.isTensor() ? element.toTensor() : at::Tensor();
    if (index.defined() && is_mask(index)) {
      dim += index.dim();
      continue;
    }
    if (index.defined()) {
      check(index, self, dim);
    }
    ++dim;
  }
}

}  // namespace

void check_host_indices(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (!info.takes_cpu_tensors || arguments.size() < 2 || !arguments[0].isTensor()) {
    return;
  }
  const at::Tensor& self = arguments[0].toTensor();
  if (arguments[1].isList()) {
    check_list(self, arguments[1]);
  } else if (arguments.size() > 2 && arguments[1].isInt() && arguments[2].isTensor() &&
             self.dim() > 0 && !is_mask(arguments[2].toTensor())) {
    check(arguments[2].toTensor(), self, at::maybe_wrap_dim(arguments[1].toInt(), self.dim()));
  }
}

}  // namespace torch_xla
