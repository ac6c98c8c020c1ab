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
#include <unordered_map>

namespace torch_xla {

// An index that is none of `size` places.
struct Misplaced {
  int64_t index, dim, size;
  int64_t rank;   // of the tensor
  bool as_given;  // what is written is not scaled, and the index is of int64
  bool empty;     // the tensor

  std::string str() const {
    return size == 0 ? "index is out of bounds for dimension with size 0"
                     : c10::str("index ", index, " is out of bounds for dimension ", dim,
                                " with size ", size);
  }
};

struct PlaceRule {
  bool counts_from_the_end;  // negative indices do
  void (*refuse)(const Misplaced&);
  bool minds_nothing = false;  // wrong places of an empty tensor, too
};

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
  c10::Storage bytes = data == nullptr ? c10::Storage() : data->host_if_there();
  if (!bytes) {
    return {};
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return cpu_tensor(std::move(bytes), index.scalar_type(), index.sizes(), index.strides(),
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

int64_t first_outside(const at::Tensor& index, int64_t least, int64_t size) {
  at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor places = index.to(at::kLong).contiguous();
  const auto* place = places.const_data_ptr<int64_t>();
  while (least <= *place && *place < size) {
    ++place;
  }
  return *place;
}

int64_t size_of(const at::Tensor& self, int64_t dim) {
  return self.dim() == 0 ? 1 : self.size(dim);
}

void plainly(const Misplaced& it) { TORCH_CHECK_INDEX(false, it.str()); }

void as_runtime_error(const Misplaced& it) { TORCH_CHECK(false, it.str()); }

void in_self(const Misplaced&) { TORCH_CHECK_INDEX(false, "index out of range in self"); }

void of_copy(const Misplaced& it) { TORCH_CHECK_INDEX(false, "index_copy_(): ", it.str()); }

void of_elements(const Misplaced& it) {
  TORCH_CHECK_INDEX(false, "out of range: tried to access index ", it.index, " on a tensor of ",
                    it.size, " elements.");
}

void of_selection(const Misplaced& it) {
  TORCH_CHECK(it.rank == 1 || (it.dim != 1 && !it.empty),
              "INDICES element is out of DATA bounds, id=", it.index, " axis_dim=", it.size);
  in_self(it);
}

// The CPU scatters what is added as it is along the first or the last dimension.
void of_addition(const Misplaced& it) {
  if (it.empty && it.rank > 1) {
    return;  // nothing is added
  }
  const bool scatters = it.rank > 1 && (it.dim == 0 || it.dim == it.rank - 1) && it.as_given;
  scatters ? as_runtime_error(it) : in_self(it);
}

void of_reduction(const Misplaced& it) { it.rank <= 1 || it.empty ? in_self(it) : plainly(it); }

// One of `size` places of `self`.
void check(const PlaceRule& rule, const at::Tensor& given, const at::Tensor& self, int64_t dim,
           int64_t size, bool scaled = false) {
  if (given.numel() == 0 || !at::isIntegralType(given.scalar_type(), false) ||
      (size > 0 && self.numel() == 0 && !rule.minds_nothing)) {
    return;  // nothing is read or written, which most of PyTorch's kernels do not mind
  }
  const at::Tensor index = on_host(given);
  if (!index.defined()) {
    return;
  }
  const auto [low, high] = bounds(index);
  const int64_t least = rule.counts_from_the_end ? -size : 0;
  if (least <= low && high < size) {
    return;
  }
  if (is_xla(given) && env::flag("TORCH_XLA_CHECK_INDICES")) {
    return;  // programs check, and say where
  }
  rule.refuse({first_outside(index, least, size), dim, size, self.dim(),
               !scaled && given.scalar_type() == at::kLong, self.numel() == 0});
}

// x[i, j, ...]: a mask is an index for as many dimensions as it has.
void check_list(const PlaceRule& rule, const at::Tensor& self, const c10::IValue& indices) {
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
      check(rule, index, self, dim, self.size(dim));
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

const PlaceRule* find_place_rule(std::string_view op) {
  static const auto* rules = new std::unordered_map<std::string_view, PlaceRule>{
      {"aten::index", {true, &plainly}},
      {"aten::_unsafe_index", {true, &plainly}},
      {"aten::index_put", {true, &plainly}},
      {"aten::_unsafe_index_put", {true, &plainly}},
      {"aten::_index_put_impl", {true, &plainly}},
      {"aten::index_fill", {true, &plainly}},
      {"aten::index_select", {false, &of_selection, true}},
      {"aten::index_copy", {false, &of_copy}},
      {"aten::index_add", {false, &of_addition}},
      {"aten::index_reduce", {false, &of_reduction, true}},
      {"aten::gather", {false, &as_runtime_error}},
      {"aten::scatter", {false, &as_runtime_error}},
      {"aten::scatter_add", {false, &as_runtime_error}},
      {"aten::scatter_reduce", {false, &as_runtime_error}},
      {"aten::take", {true, &of_elements}},
      {"aten::put", {true, &of_elements}},
  };
  if (op.ends_with('_')) {
    op.remove_suffix(1);  // in place
  }
  auto found = rules->find(op);
  return found == rules->end() ? nullptr : &found->second;
}

// x[indices], gather(x, dim, index), take(x, index) and their like.
void check_host_indices(const PlaceRule& rule, c10::ArrayRef<c10::IValue> arguments) {
  if (arguments.size() < 2 || !arguments[0].isTensor()) {
    return;
  }
  const at::Tensor& self = arguments[0].toTensor();
  if (arguments[1].isList()) {
    check_list(rule, self, arguments[1]);
    if (arguments.size() > 2 && arguments[2].isTensor()) {
      check_values_under_masks(self, arguments[1], arguments[2].toTensor());
    }
  } else if (arguments[1].isTensor()) {
    check(rule, arguments[1].toTensor(), self, 0, self.numel());
  } else if (arguments.size() > 2 && arguments[1].isInt() && arguments[2].isTensor() &&
             !is_mask(arguments[2].toTensor())) {
    const int64_t dim = at::maybe_wrap_dim(arguments[1].toInt(), self.dim());
    const bool scaled = arguments.size() > 4 && arguments[4].isScalar() &&
                        !arguments[4].toScalar().equal(1);  // index_add's alpha
    check(rule, arguments[2].toTensor(), self, dim, size_of(self, dim), scaled);
  }
}

}  // namespace torch_xla
