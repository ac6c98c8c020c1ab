#include "record/recorder.h"

#include "base/error.h"
#include "base/location.h"
#include "eager/mode.h"
#include "execution/export.h"
#include "execution/growth.h"
#include "execution/sync.h"
#include "metrics/metrics.h"
#include "record/decompose.h"
#include "record/eager_call.h"
#include "record/generator.h"
#include "record/host_indices.h"
#include "record/host_run.h"
#include "record/plan.h"
#include "record/reference.h"
#include "timeline/timeline.h"
#include "trace/for_each_tensor.h"
#include "trace/region.h"
#include "trace/scope.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/_conj_physical.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/resize.h>

#include <algorithm>

namespace torch_xla {

namespace {

// Where operands begin that could begin elsewhere.
void add_starts(const CallPlan& plan, const Call& call, Node& node) {
  size_t operand = 0;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (plan.is_operand[i] && plan.signature->operands[operand++].start >= 0) {
      node.numbers.push_back(Number::of(static_cast<int64_t>(call.tensors[i]->storage_offset())));
    }
  }
}

NodePtr make_op_node(const CallPlan& plan, const Call& call) {
  NodePtr node = new_operation();
  node->signature = plan.signature;
  node->numbers.assign(call.numbers.begin(), call.numbers.end());
  const Signature& signature = *plan.signature;
  size_t operand = signature.operands.size() - (signature.random ? 1 : 0) - call.computed.size();
  for (size_t number : call.computed) {
    node->numbers[number].operand = static_cast<int32_t>(operand++);
  }
  if (call.numbers.size() < plan.signature->number_kinds.size()) {
    add_starts(plan, call, *node);
  }
  node->location = last_location();
  node->operands.reserve(plan.signature->operands.size());
  return node;
}

at::Tensor new_result(const OutputSpec& spec, int device) {
  return empty_tensor(spec.dtype, spec.sizes, spec.strides, device);
}

const at::Tensor& written_tensor(const CallPlan::Result& result, Arguments arguments) {
  const c10::IValue& argument = arguments[result.argument];
  return result.element < 0 ? argument.toTensor() : argument.toListRef()[result.element].toTensor();
}

// out= tensors take the results' sizes, as on every device, and their strides.
void resize_written(const OpInfo& info, const at::Tensor& out, const OutputSpec& spec) {
  if (out.sizes() == c10::IntArrayRef(spec.sizes)) {
    return;
  }
  if (info.resizes_outputs) {
    at::native::resize_output_check(out, spec.sizes);  // warns
  }
  out.resize_(spec.sizes);
  if (out.strides() != c10::IntArrayRef(spec.strides)) {
    out.unsafeGetTensorImpl()->set_sizes_and_strides(spec.sizes, spec.strides);
  }
}

bool has_lazy_bit(const c10::IValue& value) {
  if (!value.isTensor()) {
    return false;
  }
  const at::Tensor& tensor = value.toTensor();
  return is_xla(tensor) && (tensor.is_conj() || tensor.is_neg());
}

// Where a result goes: a new tensor, an argument, or nowhere.
struct Target {
  at::Tensor fresh;
  const at::Tensor* written = nullptr;
  bool defined() const { return written != nullptr || fresh.defined(); }
  const at::Tensor& tensor() const { return written != nullptr ? *written : fresh; }
};

using Targets = c10::SmallVector<Target, 2>;

Targets make_targets(const OpInfo& info, const CallPlan& plan, int device, Arguments arguments) {
  Targets targets(plan.results.size());
  for (size_t i = 0; i < plan.results.size(); ++i) {
    const CallPlan::Result& result = plan.results[i];
    if (result.output < 0) {
      continue;
    }
    const OutputSpec& spec = plan.signature->outputs[result.output];
    if (result.argument < 0) {
      targets[i].fresh = new_result(spec, device);
    } else {
      targets[i].written = &written_tensor(result, arguments);
      if (info.resizes_outputs || info.resizes_state) {
        resize_written(info, *targets[i].written, spec);
      }
    }
  }
  return targets;
}

// The device's generator, the one the call names, or the one of the trace around it.
const at::Generator& generator_of(const Call& call) {
  TraceScope* scope = current_scope();
  if (call.generator) {
    return *call.generator;
  }
  return scope != nullptr && scope->generator.defined() ? scope->generator
                                                        : default_generator(call.device);
}

// The only part under the trace lock: operand values in, result values out.
void link(const CallPlan& plan, const Call& call, const NodePtr& node, const Targets& targets,
          const at::Generator& generator, const at::Tensor& generator_state) {
  TraceLock lock;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (plan.is_operand[i]) {
      node->operands.push_back(value_of(*call.tensors[i]));
    }
  }
  if (generator_state.defined()) {
    node->operands.push_back(value_of_state(*generator_state.unsafeGetTensorImpl(), generator));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!targets[i].defined()) {
      continue;
    }
    auto output = static_cast<uint32_t>(plan.results[i].output);
    if (targets[i].written == nullptr) {
      assign_value(*targets[i].fresh.unsafeGetTensorImpl(), {node, output});
    } else {
      write_value(*targets[i].written, {node, output}, plan.signature->outputs[output]);
    }
  }
  if (generator_state.defined()) {
    auto last = static_cast<uint32_t>(plan.signature->outputs.size() - 1);
    assign_value(*generator_state.unsafeGetTensorImpl(), {node, last});
  }
}

// Eager programs start from values, not from what another mode left to do.
void run_pending_operands(const Call& call) {
  std::vector<StatePtr> pending;
  {
    TraceLock lock;
    for (c10::TensorImpl* tensor : call.tensors) {
      if (state_of(*tensor)->pending()) {
        pending.push_back(state_of(*tensor));
      }
    }
  }
  if (!pending.empty()) {
    sync_storages(pending);
  }
}

void run_at_once(const Targets& targets, const at::Tensor& generator_state) {
  std::vector<StatePtr> states;
  for (const Target& target : targets) {
    if (target.defined()) {
      states.push_back(state_of(target.tensor()));
    }
  }
  if (generator_state.defined()) {
    states.push_back(state_of(generator_state));
  }
  run_eagerly(states);
}

void add_fresh_returns(const OpInfo& info, const CallPlan& plan, Targets& targets,
                       Returns& returns) {
  size_t next = 0;
  size_t fresh = 0;
  for (int alias : info.return_alias) {
    if (alias >= 0) {
      continue;
    }
    int length = plan.return_lengths[fresh++];
    if (length < 0) {
      returns.emplace_back(std::move(targets[next++].fresh));
      continue;
    }
    c10::List<at::Tensor> list;
    for (int i = 0; i < length; ++i) {
      list.push_back(std::move(targets[next++].fresh));
    }
    returns.emplace_back(std::move(list));
  }
}

// What is seldom used takes a stack; `run` says whether it has run the call.
template <typename Run>
bool run_on_stack(const OpInfo& info, Arguments arguments, Returns& fresh, const Run& run) {
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  if (!run(&stack)) {
    return false;
  }
  for (size_t i = 0; i < stack.size(); ++i) {
    if (info.return_alias[i] < 0) {
      fresh.push_back(std::move(stack[i]));
    }
  }
  return true;
}

// Operators that PyTorch lets through with a conjugate or negative bit (copies, products) get the
// value the bit stands for, and what they write is written through the bit.
void record_resolved(OpInfo& info, Arguments arguments, Returns& fresh) {
  std::vector<c10::IValue> resolved(arguments.begin(), arguments.end());
  for (c10::IValue& argument : resolved) {
    if (has_lazy_bit(argument)) {
      const at::Tensor& tensor = argument.toTensor();
      const bool is_neg = tensor.is_neg();
      at::Tensor plain = without_lazy_bits(tensor);
      plain = tensor.is_conj() ? at::_conj_physical(plain) : plain;
      argument = is_neg ? at::neg(plain) : plain;
    }
  }
  const std::vector<c10::IValue> given = resolved;  // indices of the host may be replaced
  record_op(info, resolved, fresh);
  for (size_t i : info.mutated) {
    if (has_lazy_bit(arguments[i])) {
      const at::Tensor& written = given[i].toTensor();
      arguments[i].toTensor().resize_(written.sizes()).copy_(written);
    }
  }
}

// Refuses a call that writes where it may not.
CallPlanPtr find_allowed_plan(const OpInfo& info, const Call& call,
                              c10::ArrayRef<c10::IValue> arguments) {
  CallPlanPtr plan;
  try {
    plan = find_plan(info, call, arguments);
  } catch (const c10::Error&) {
    if (info.mutates()) {
      refuse_overlaps(info, arguments);  // some kernels look at memory before sizes
    }
    throw;
  }
  if (info.mutates()) {
    check_overlaps(info, arguments);
  }
  return plan;
}

// A call that is wrong in several ways is refused as on the CPU, which looks at places last.
void check_places(const OpInfo& info, Arguments arguments) {
  try {
    check_host_indices(*info.places, arguments);
  } catch (const c10::Error&) {
    find_allowed_plan(info, read_call(info, arguments.data(), arguments.size()), arguments);
    throw;
  }
}

// What became of a call that its operator's entry in the table does not tell.
void count_as(const char* prefix, const OpInfo& info) {
  const std::string& name = info.op.schema().name();
  metrics::counter(prefix + name.substr(name.find("::") + 2)).add();
}

}  // namespace

void record_op(OpInfo& info, Arguments arguments, Returns& fresh) {
  int64_t elements = 0;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) { elements += elements_of(tensor); });
  }
  record_op(info, arguments, fresh, runs_on_host(info, elements));
}

void record_op(OpInfo& info, Arguments arguments, Returns& fresh, bool on_host) {
  if (std::any_of(arguments.begin(), arguments.end(), has_lazy_bit)) {
    record_resolved(info, arguments, fresh);
    return;
  }
  if (on_host) {
    run_on_host_memory(info, arguments, fresh);
    return;
  }
  const eager::Mode mode = eager::mode();
  current_location();
  timeline::Scope span(timeline::Kind::Trace);
  if (info.places != nullptr) {
    check_places(info, arguments);
  }
  Call call = read_call(info, arguments.data(), arguments.size());
  const CallPlanPtr found = find_allowed_plan(info, call, arguments);
  const CallPlan& plan = *found;
  if (plan.in_memory) {
    refuse_while_tracing(
        "more than one element of a tensor that is written refers to a single memory location: "
        "clone() it first");
    info.counter->add();
    RunReason reason(info.name.c_str());
    run_on_host_memory(info, arguments, fresh);
    return;
  }
  const bool exported =
      plan.recorded && plan.signature->tier == Tier::Host && ExportScope::active();
  if (!plan.recorded && !call.computed.empty()) {
    refuse_while_tracing(
        "a number that is computed on the device (of steps that may be skipped) was given to an "
        "operator that needs its value");
  }
  if ((!plan.recorded || exported) &&
      run_on_stack(info, arguments, fresh,
                   [&](torch::jit::Stack* stack) { return run_decomposition(info, stack); })) {
    count_as("xla::", info);
    return;
  }
  if (!plan.recorded) {
    count_as("aten::", info);
    run_on_stack(info, arguments, fresh, [&](torch::jit::Stack* stack) {
      run_on_host(info, stack);
      return true;
    });
    return;
  }
  info.counter->add();
  if (mode == eager::Mode::Programs) {
    run_pending_operands(call);
  }
  at::Generator generator;
  at::Tensor generator_state;
  if (plan.signature->random) {
    if (!call.numbers.empty()) {
      check_draw(info, arguments);
    }
    generator = generator_of(call);
    generator_state = xla_generator(generator).state_tensor();
  }
  NodePtr node = make_op_node(plan, call);
  Targets targets = make_targets(info, plan, call.device, arguments);
  link(plan, call, node, targets, generator, generator_state);
  if (mode == eager::Mode::Programs) {
    run_at_once(targets, generator_state);
  } else {
    growth::operation_recorded(call.device);
  }
  add_fresh_returns(info, plan, targets, fresh);
}

void record_boxed(OpInfo& info, torch::jit::Stack* stack) {
  const size_t count = info.scalar_arguments.size();
  const Arguments arguments(stack->data() + (stack->size() - count), count);
  Returns fresh;
  record_op(info, arguments, fresh);
  Returns returns;
  size_t next = 0;
  for (int alias : info.return_alias) {
    returns.push_back(alias >= 0 ? arguments[alias] : std::move(fresh[next++]));
  }
  torch::jit::drop(*stack, count);
  for (c10::IValue& value : returns) {
    stack->push_back(std::move(value));
  }
}

void record_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  record_boxed(op_info(op), stack);
}

}  // namespace torch_xla
