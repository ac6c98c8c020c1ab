#include "pure/host_watch.h"

#include "trace/for_each_tensor.h"
#include "trace/scope.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace torch_xla {

namespace {

template <typename Visit>
void visit_cpu_tensors(const c10::IValue& value, const Visit& visit) {
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (tensor.device().is_cpu() && tensor.has_storage()) {
      visit(tensor);
    }
  });
}

struct Context : at::ObserverContext {
  bool constant = true;
};

std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& function) {
  TraceScope* scope = current_scope();
  auto context = std::make_unique<Context>();
  if (scope == nullptr) {
    return context;
  }
  std::optional<c10::OperatorName> name = function.operator_name();
  auto op = name ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
  context->constant = !(op && op->hasTag(at::Tag::nondeterministic_seeded));
  std::vector<at::Tensor> inputs;
  for (const c10::IValue& input : function.inputs()) {
    visit_cpu_tensors(input, [&](const at::Tensor& tensor) {
      context->constant &= scope->host_constants.contains(tensor);
      inputs.push_back(tensor);
    });
  }
  if (!context->constant && op && op->schema().is_mutable()) {
    for (const at::Tensor& written : inputs) {  // not all operators return what they write
      scope->host_constants.remove(written);
    }
  }
  return context;
}

void after(const at::RecordFunction& function, at::ObserverContext* context) {
  TraceScope* scope = current_scope();
  if (scope == nullptr || context == nullptr) {
    return;
  }
  bool constant = static_cast<Context*>(context)->constant;
  for (const c10::IValue& output : function.outputs()) {
    visit_cpu_tensors(output, [&](const at::Tensor& tensor) {
      if (constant) {
        scope->host_constants.add(tensor);
      } else {
        scope->host_constants.remove(tensor);
      }
    });
  }
}

}  // namespace

HostWatch::HostWatch()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(before, after)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {}

HostWatch::~HostWatch() { at::removeCallback(handle_); }

}  // namespace torch_xla
