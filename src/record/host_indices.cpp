#include "record/host_indices.h"

#include "base/env.h"
#include "execution/launch.h"
#include "host_ops/kernel_call.h"
#include "pjrt/client.h"
#include "record/reference.h"
#include "trace/scope.h"
#include "trace/tensor.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

namespace torch_xla {

namespace {

bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

// The index where the host can read it without waiting: a list among the indices, say, which
// PyTorch has just made a tensor of the device. Long ones are not looked at every time.
at::Tensor on_host(const at::Tensor& index) {
  constexpr int64_t kLong = 1024;
  if (!is_xla(index)) {
    return index.device().is_cpu() ? index : at::Tensor();
  }
  if (index.numel() > kLong || !pjrt::client().host_memory()) {
    return {};
  }
  NodePtr leaf;
  std::optional<InputHold> hold;
  {
    TraceLock lock;
    leaf = value_of(*index.unsafeGetTensorImpl()).node;
    hold.emplace(std::vector<NodePtr>{leaf}, std::vector<bool>{false});
  }
  DeviceData* data = device_data(*leaf);
  pjrt::Buffer* buffer = data == nullptr ? nullptr : data->settled_buffer();
  if (buffer == nullptr || buffer->is_deleted() || !buffer->is_ready()) {
    return {};
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return cpu_tensor(data->host(), index.scalar_type(), index.sizes(), index.strides(),
                    index.storage_offset())
      .clone();
}

std::pair<int64_t, int64_t> bounds(const at::Tensor& index) {
  if (index.scalar_type() == at::kLong && index.is_contiguous()) {
    const auto* first = index.const_data_ptr<int64_t>();
    const auto [low, high] = std::minmax_element(first, first + index.numel());
    return {*low, *high};
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  const auto [low, high] = at::aminmax(index);
  return {low.item<int64_t>(), high.item<int64_t>()};
}

int64_t size_of(const at::Tensor& self, int64_t dim) {
  return self.dim() == 0 ? 1 : self.size(dim);
}

// Each operator has an error of its own.
[[noreturn]] void refuse(std::string_view op, int64_t index, int64_t dim, int64_t size,
                         int64_t rank) {
  const bool by_rows = op.starts_with("aten::index_add") || op.starts_with("aten::index_reduce");
  TORCH_CHECK_INDEX(!op.starts_with("aten::index_select") && !(by_rows && rank <= 1),
                    "index out of range in self");
  TORCH_CHECK_INDEX(!op.starts_with("aten::take") && !op.starts_with("aten::put"),
                    "out of range: tried to access index ", index, " on a tensor of ", size,
                    " elements.");
  const std::string sentence =
      size == 0
          ? "index is out of bounds for dimension with size 0"
          : c10::str("index ", index, " is out of bounds for dimension ", dim, " with size ", size);
  TORCH_CHECK_INDEX(!op.starts_with("aten::index_copy"), "index_copy_(): ", sentence);
  TORCH_CHECK(!op.starts_with("aten::index_add") && !op.starts_with("aten::gather") &&
                  !op.starts_with("aten::scatter"),
              sentence);
  TORCH_CHECK_INDEX(false, sentence);
}

bool counts_from_the_end(std::string_view op) {
  return op == "aten::index" || op.starts_with("aten::index_fill") ||
         op.starts_with("aten::take") || op.starts_with("aten::put");
}

// As `op` does it: one of `size` places of `self`.
void check(const at::Tensor& given, const at::Tensor& self, int64_t dim, int64_t size,
           std::string_view op = "aten::index") {
  if (given.numel() == 0 || !at::isIntegralType(given.scalar_type(), false) ||
      (size > 0 && self.numel() == 0)) {
    return;  // nothing is read or written, which PyTorch's kernels do not mind
  }
  const at::Tensor index = on_host(given);
  if (!index.defined()) {
    return;
  }
  const auto [low, high] = bounds(index);
  const int64_t least = counts_from_the_end(op) ? -size : 0;
  if (least <= low && high < size) {
    return;
  }
  if (is_xla(given) && env::flag("TORCH_XLA_CHECK_INDICES")) {
    return;  // programs check, and say where
  }
  refuse(op, low < least || low >= size ? low : high, dim, size, self.dim());
}

// x[i, j, ...]: a mask is an index for as many dimensions as it has.
void check_list(const at::Tensor& self, const c10::IValue& indices) {
  for (const c10::IValue& element : indices.toListRef()) {
    if (element.isTensor() && element.toTensor().defined() && element.toTensor().numel() == 0) {
      return;  // together with an empty one the others choose nothing
    }
  }
  int64_t dim = 0;
  for (const c10::IValue& element : indices.toListRef()) {
    const at::Tensor index = element.isTensor() ? element.toTensor() : at::Tensor();
    if (index.defined() && is_mask(index)) {
      dim += index.dim();
      continue;
    }
    if (index.defined() && dim < self.dim()) {
      check(index, self, dim, self.size(dim));
    }
    ++dim;
  }
}

// x[mask] = values: how many values it takes, the mask says.
void check_values_under_masks(const at::Tensor& self, const c10::IValue& given,
                              const at::Tensor& values) {
  const at::TensorOptions meta = at::TensorOptions().device(at::kMeta);
  c10::List<std::optional<at::Tensor>> indices;
  bool masked = false;
  for (const c10::IValue& element : given.toListRef()) {
    const at::Tensor index = element.isTensor() ? element.toTensor() : at::Tensor();
    if (!index.defined()) {
      indices.push_back(std::nullopt);
    } else if (!is_mask(index)) {
      indices.push_back(at::empty(index.sizes(), meta.dtype(at::kLong)));
    } else if (const at::Tensor mask = on_host(index); mask.defined() && mask.dim() > 0) {
      at::AutoDispatchBelowADInplaceOrView guard;
      const int64_t places = at::count_nonzero(mask).item<int64_t>();
      for (int64_t dim = 0; dim < mask.dim(); ++dim) {
        indices.push_back(at::empty({places}, meta.dtype(at::kLong)));
      }
      masked = true;
    } else {
      return;
    }
  }
  if (masked) {
    check_written_values(at::empty(self.sizes(), meta.dtype(self.scalar_type())), indices, values);
  }
}

}  // namespace

void check_host_indices(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (!info.checks_places || arguments.size() < 2 || !arguments[0].isTensor()) {
    return;
  }
  const at::Tensor& self = arguments[0].toTensor();
  const std::string& op = info.op.schema().name();
  if (arguments[1].isList()) {
    check_list(self, arguments[1]);
    if (arguments.size() > 2 && arguments[2].isTensor()) {
      check_values_under_masks(self, arguments[1], arguments[2].toTensor());
    }
  } else if (arguments[1].isTensor() && !info.has_indices) {
    check(arguments[1].toTensor(), self, 0, self.numel(), op);
  } else if (arguments.size() > 2 && arguments[1].isInt() && arguments[2].isTensor() &&
             !is_mask(arguments[2].toTensor())) {
    const int64_t dim = at::maybe_wrap_dim(arguments[1].toInt(), self.dim());
    check(arguments[2].toTensor(), self, dim, size_of(self, dim), op);
  }
}

}  // namespace torch_xla
