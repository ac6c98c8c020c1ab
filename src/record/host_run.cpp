#include "record/host_run.h"

#include "execution/sync.h"
#include "record/call.h"
#include "record/meta.h"
#include "trace/region.h"
#include "trace/scope.h"
#include "values/internal_ops.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/resize.h>
#include <ATen/ops/unbind.h>

#include <algorithm>

namespace torch_xla {

namespace {

std::vector<StatePtr> states_of(c10::ArrayRef<c10::IValue> arguments) {
  std::vector<StatePtr> states;
  for (const at::Tensor& tensor : flatten_tensors(arguments.vec())) {
    if (is_xla(tensor)) {
      states.push_back(state_of(tensor));
    }
  }
  return states;
}

// On the host, its dimensions in memory in the same order: kernels lay their results accordingly.
at::Tensor operand_of_host(const at::Tensor& tensor) {
  if (!is_xla(tensor)) {
    return tensor;
  }
  const at::Tensor copy = to_cpu(tensor);
  const std::vector<int64_t> strides = at::infer_dense_strides(tensor.sizes(), tensor.strides());
  return copy.strides() == c10::IntArrayRef(strides)
             ? copy
             : at::empty_strided(copy.sizes(), strides, copy.options()).copy_(copy);
}

void write_back(const c10::IValue& target, const c10::IValue& computed) {
  std::vector<at::Tensor> targets = flatten_tensors({target});
  std::vector<at::Tensor> values = flatten_tensors({computed});
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!is_xla(targets[i])) {
      continue;
    }
    if (targets[i].sizes() != values[i].sizes()) {
      targets[i].resize_(values[i].sizes());
      // Some kernels choose the order in memory of what they resize: nonzero. Others leave room
      // between its rows, which there is none for here: lstsq.
      if (is_dense_permutation(values[i].sizes(), values[i].strides())) {
        targets[i].unsafeGetTensorImpl()->set_sizes_and_strides(values[i].sizes(),
                                                                values[i].strides());
      }
    }
    copy_from_cpu(targets[i], values[i]);
  }
}

bool is_mask_value(const c10::IValue& index) {
  return index.isTensor() && index.toTensor().defined() &&
         (index.toTensor().scalar_type() == at::kBool ||
          index.toTensor().scalar_type() == at::kByte);
}

// A mask that is the same at every call of a traced function, on the host.
at::Tensor constant_mask(const at::Tensor& mask) {
  if (is_xla(mask)) {
    return to_cpu(mask);
  }
  check_host_constant(mask);
  return mask;
}

// The places that it chooses, per dimension.
std::vector<at::Tensor> chosen_places(const at::Tensor& mask, int device) {
  std::vector<at::Tensor> places;
  for (const at::Tensor& column : mask.nonzero().unbind(1)) {
    const at::Tensor dense = column.contiguous();
    current_scope()->host_constants.add(dense);
    places.push_back(upload(dense, device));
  }
  return places;
}

at::Tensor select_by_mask(const at::Tensor& self, const at::Tensor& mask) {
  const std::vector<at::Tensor> wide = at::broadcast_tensors({self, mask});
  const at::Tensor chosen = constant_mask(mask).expand(wide[1].sizes()).reshape(-1);
  return wide[0].reshape(-1).index_select(0, chosen_places(chosen, self.device().index())[0]);
}

at::Tensor index_by_masks(const at::Tensor& self, c10::ArrayRef<c10::IValue> given) {
  c10::List<std::optional<at::Tensor>> indices;
  for (const c10::IValue& index : given) {
    if (!is_mask_value(index)) {
      indices.push_back(index.toOptional<at::Tensor>());
      continue;
    }
    const at::Tensor mask = constant_mask(index.toTensor());
    const auto first = static_cast<int64_t>(indices.size());
    TORCH_CHECK_INDEX(first + mask.dim() <= self.dim(), "too many indices for tensor of dimension ",
                      self.dim());
    for (int64_t dim = 0; dim < mask.dim(); ++dim) {
      TORCH_CHECK_INDEX(mask.size(dim) == self.size(first + dim), "The shape of the mask ",
                        mask.sizes(), " at index ", dim,
                        " does not match the shape of the indexed tensor ", self.sizes(),
                        " at index ", first + dim);
    }
    for (const at::Tensor& places : chosen_places(mask, self.device().index())) {
      indices.push_back(places);
    }
  }
  return at::index(self, indices);
}

// What masks select that are the same at every call of a traced function has known sizes.
bool select_by_constant(const OpInfo& info, torch::jit::Stack* stack) {
  const bool indexes = info.name == "aten::index.Tensor";
  if (current_scope() == nullptr || (!indexes && info.name != "aten::masked_select")) {
    return false;
  }
  const at::Tensor self = torch::jit::peek(*stack, 0, 2).toTensor();
  const c10::IValue which = torch::jit::peek(*stack, 1, 2);
  if (indexes && std::none_of(which.toListRef().begin(), which.toListRef().end(), is_mask_value)) {
    return false;
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor selected =
      indexes ? index_by_masks(self, which.toListRef()) : select_by_mask(self, which.toTensor());
  torch::jit::drop(*stack, 2);
  stack->push_back(std::move(selected));
  return true;
}

}  // namespace

void run_on_host(const OpInfo& info, torch::jit::Stack* stack) {
  if (select_by_constant(info, stack)) {
    return;
  }
  size_t count = info.scalar_arguments.size();
  IValues arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  RunReason reason(info.name.c_str());
  if (current_scope() == nullptr) {
    sync_storages(states_of(arguments));  // one program for all of them
  }
  torch::jit::Stack host;
  for (const c10::IValue& argument : arguments) {
    host.push_back(map_tensors(argument, operand_of_host, c10::Device(c10::kCPU)));
  }
  IValues host_arguments = host;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    info.op.callBoxed(&host);
  }
  for (size_t argument : info.mutated) {
    write_back(arguments[argument], host_arguments[argument]);
  }
  int device = device_of_call(arguments);
  auto send = [device](const at::Tensor& tensor) { return upload(tensor, device); };
  torch::jit::drop(*stack, count);
  for (size_t i = 0; i < host.size(); ++i) {
    int alias = info.return_alias[i];
    stack->push_back(alias >= 0 ? arguments[alias] : map_tensors(host[i], send, device_of(device)));
  }
}

}  // namespace torch_xla
