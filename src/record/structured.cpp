#include "record/structured.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

using c10::DispatchKey;

// The generic form of a structured kernel calls the first part, and then the operator that writes
// the results to tensors made so (`out=`). In this mode, which PyTorch has for tests, that call
// ends here.
constexpr DispatchKey kShapesOnly = DispatchKey::TESTING_ONLY_GenericMode;
constexpr DispatchKey kGeneric = DispatchKey::CompositeExplicitAutogradNonFunctional;

bool writes_to_outputs(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return !arguments.empty() && arguments.back().is_out();
}

void compute_nothing(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (!writes_to_outputs(schema)) {
    c10::impl::ExcludeDispatchKeyGuard computing(kShapesOnly);
    op.callBoxed(stack);
    return;
  }
  std::vector<c10::IValue> outputs(stack->end() - static_cast<int64_t>(schema.returns().size()),
                                   stack->end());
  torch::jit::drop(*stack, schema.arguments().size());
  for (c10::IValue& output : outputs) {
    stack->push_back(std::move(output));
  }
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_nothing>());
}

}  // namespace

bool is_structured(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(kGeneric) && op.hasKernelForDispatchKey(DispatchKey::CPU);
}

std::optional<IValues> run_structured(const c10::OperatorHandle& op,
                                      const IValues& meta_arguments) {
  if (!is_structured(op)) {
    return std::nullopt;
  }
  c10::impl::IncludeDispatchKeyGuard shapes_only(kShapesOnly);
  IValues stack = meta_arguments;
  op.callBoxedForDispatchKey(kGeneric, stack);
  return stack;
}

}  // namespace torch_xla
