#include "record/decompose.h"

#include "record/call.h"
#include "record/meta.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/resize.h>

#include <atomic>

namespace torch_xla {

namespace {

std::atomic<Decomposer> installed{nullptr};

void write_results(const c10::IValue& target, const c10::IValue& computed) {
  std::vector<at::Tensor> targets = flatten_tensors({target});
  std::vector<at::Tensor> values = flatten_tensors({computed});
  for (size_t i = 0; i < targets.size(); ++i) {
    if (at::native::resize_output_check(targets[i], values[i].sizes())) {  // warns
      targets[i].resize_(values[i].sizes());
    }
    targets[i].copy_(values[i]);
  }
}

}  // namespace

void set_decomposer(Decomposer decomposer) { installed = decomposer; }

bool run_decomposition(const OpInfo& info, torch::jit::Stack* stack) {
  Decomposer decomposer = installed;
  if (decomposer == nullptr || !info.has_functional || info.random) {
    return false;
  }
  size_t count = info.scalar_arguments.size();
  IValues arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::Stack results = functional_arguments(info, arguments);
  if (!decomposer(info.functional, &results)) {
    return false;
  }
  torch::jit::drop(*stack, count);
  size_t fresh = 0;
  size_t mutated = results.size() - info.mutated.size();
  for (size_t i = 0; i < info.mutated.size(); ++i) {
    write_results(arguments[info.mutated[i]], results[mutated + i]);
  }
  for (int alias : info.return_alias) {
    stack->push_back(alias >= 0 ? arguments[alias] : results[fresh++]);
  }
  return true;
}

}  // namespace torch_xla
