#include "record/host_run.h"

#include "execution/sync.h"
#include "record/call.h"
#include "record/meta.h"
#include "trace/region.h"
#include "trace/scope.h"
#include "values/internal_ops.h"

#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/resize.h>

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

// What a mask selects that is the same at every call of a traced function has known sizes.
bool select_by_constant(const OpInfo& info, torch::jit::Stack* stack) {
  TraceScope* scope = current_scope();
  if (scope == nullptr || info.name != "aten::masked_select") {
    return false;
  }
  const at::Tensor self = torch::jit::peek(*stack, 0, 2).toTensor();
  const at::Tensor mask = torch::jit::peek(*stack, 1, 2).toTensor();
  at::AutoDispatchBelowADInplaceOrView guard;
  const std::vector<at::Tensor> wide = at::broadcast_tensors({self, mask});
  at::Tensor places = to_cpu(mask).expand(wide[1].sizes()).reshape(-1).nonzero().reshape(-1);
  scope->host_constants.add(places);
  torch::jit::drop(*stack, 2);
  stack->push_back(wide[0].reshape(-1).index_select(0, upload(places, self.device().index())));
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
  auto read = [](const at::Tensor& tensor) { return is_xla(tensor) ? to_cpu(tensor) : tensor; };
  torch::jit::Stack host;
  for (const c10::IValue& argument : arguments) {
    host.push_back(map_tensors(argument, read, c10::Device(c10::kCPU)));
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
