#include "record/plan.h"

#include "base/mutex.h"
#include "base/recent_map.h"
#include "host_ops/host_ops.h"
#include "ir/window.h"
#include "pjrt/client.h"
#include "record/meta.h"
#include "record/reference.h"
#include "sharding/spmd.h"
#include "values/internal_ops.h"

#include <algorithm>

namespace torch_xla {

namespace {

bool is_dtype_argument(const c10::Argument& argument) {
  return argument.real_type()->str().find("ScalarType") != std::string::npos;
}

// A plan whose signature is being written.
struct Draft {
  CallPlan plan;
  Signature signature;
};

// Builds the signature's arguments; positions count the call's tensors and numbers in order.
class AttributeBuilder {
 public:
  AttributeBuilder(const OpInfo& info, Draft& draft) : info_(info), draft_(draft) {}

  Attribute attribute(const c10::IValue& value, const c10::Argument& argument, bool drop) {
    if (value.isTensor()) {
      return tensor(value.toTensor(), drop);
    }
    if (value.isNone() || value.isGenerator()) {
      return std::monostate();
    }
    if (value.isDevice()) {
      return value.toDevice().str();
    }
    if (value.isString()) {
      return value.toStringRef();
    }
    if (value.isList()) {
      return list(value, drop);
    }
    if (value.isInt() && is_dtype_argument(argument)) {
      return static_cast<DType>(value.toInt());
    }
    bool scalar = is_scalar_argument(argument) || value.isDouble() || value.isComplexDouble();
    if (value.isComplexDouble() || (scalar && !info_.static_numbers)) {
      return number(number_of(value.toScalar()).kind, {});
    }
    if (value.isBool()) {
      return value.toBool();
    }
    if (value.isDouble()) {
      return value.toDouble();
    }
    return value.toInt();
  }

  Attribute number(Number::Kind kind, NumberRef ref) {
    ref.slot = static_cast<int32_t>(draft_.signature.number_kinds.size());
    draft_.signature.number_kinds.push_back(kind);
    return ref;
  }

 private:
  Attribute tensor(const at::Tensor& tensor, bool drop) {
    if (!tensor.defined()) {
      return OperandRef{-1};
    }
    if (!is_xla(tensor)) {
      NumberRef ref;
      ref.is_tensor = true;
      ref.wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      ref.dtype = tensor.scalar_type();
      return number(number_of(tensor).kind, ref);
    }
    draft_.plan.is_operand.push_back(!drop);
    if (drop) {
      return OperandRef{-1};
    }
    draft_.signature.operands.push_back(window_of(tensor));
    return OperandRef{static_cast<int32_t>(draft_.signature.operands.size()) - 1};
  }

  template <typename T>
  std::vector<T> elements(const c10::IValue& value) {
    std::vector<T> result;
    for (const c10::IValue& element : value.toListRef()) {
      result.push_back(element.to<T>());
    }
    return result;
  }

  Attribute list(const c10::IValue& value, bool drop) {
    if (value.isIntList()) {
      return value.toIntVector();
    }
    if (value.isDoubleList()) {
      return value.toDoubleVector();
    }
    if (value.isBoolList()) {
      return elements<bool>(value);
    }
    auto kind = value.toList().elementType()->kind();
    if (kind == c10::TypeKind::NumberType) {
      std::vector<NumberRef> numbers;
      for (const c10::IValue& element : value.toListRef()) {
        numbers.push_back(
            std::get<NumberRef>(number(number_of(element.toScalar()).kind, NumberRef{})));
      }
      return numbers;
    }
    if (kind == c10::TypeKind::SymIntType || kind == c10::TypeKind::IntType) {
      return elements<int64_t>(value);
    }
    std::vector<OperandRef> tensors;
    for (const c10::IValue& element : value.toListRef()) {
      tensors.push_back(element.isTensor() ? std::get<OperandRef>(tensor(element.toTensor(), drop))
                                           : OperandRef{-1});
    }
    return tensors;
  }

  const OpInfo& info_;
  Draft& draft_;
};

std::optional<Attribute> moving_attribute(AttributeBuilder& builder, const Call& call,
                                          size_t argument, bool is_list) {
  std::vector<NumberRef> numbers;
  if (call.moving) {
    for (const MovingNumbers::One& one : call.moving->numbers) {
      if (one.argument == argument) {
        numbers.push_back(std::get<NumberRef>(builder.number(one.value.kind, {})));
      }
    }
  }
  if (numbers.empty()) {
    return std::nullopt;
  }
  return is_list ? Attribute(std::move(numbers)) : Attribute(numbers.front());
}

// Arguments in the order of `op`, placed where `functional` has them; out= tensors are dropped, but
// say what to compute with.
void build_arguments(const OpInfo& info, const Call& call, c10::ArrayRef<c10::IValue> arguments,
                     Draft& draft) {
  AttributeBuilder builder(info, draft);
  const auto& schema = info.op.schema().arguments();
  std::vector<Attribute> own;
  for (size_t i = 0; i < arguments.size(); ++i) {
    bool drop = (info.resizes_outputs && schema[i].is_out()) || (i == 0 && info.shape_only_self);
    std::optional<Attribute> moving = moving_attribute(builder, call, i, arguments[i].isList());
    own.push_back(moving ? std::move(*moving) : builder.attribute(arguments[i], schema[i], drop));
  }
  const auto& taken = info.functional.schema().arguments();
  for (size_t i = 0; i < info.argument_source.size(); ++i) {
    const int source = info.argument_source[i];
    if (source >= 0) {
      draft.signature.arguments.push_back(own[source]);
    } else if (is_dtype_argument(taken[i])) {
      draft.signature.arguments.emplace_back(
          arguments[info.mutated.front()].toTensor().scalar_type());
    } else {
      draft.signature.arguments.emplace_back();
    }
  }
  for (size_t i = 0; i < call.computed.size(); ++i) {
    draft.plan.is_operand.push_back(true);
    draft.signature.operands.push_back({DType::Double, {}, {}, 0});
  }
  number_starts(draft.signature);
}

OutputSpec spec_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    OutputSpec spec = make_output_spec(DType::Bool, {0}, {1});
    spec.defined = false;
    return spec;
  }
  if (is_dense_permutation(tensor.sizes(), tensor.strides())) {
    return make_output_spec(tensor.scalar_type(), tensor.sizes(), tensor.strides());
  }
  return make_output_spec(tensor.scalar_type(), tensor.sizes(), row_major_strides(tensor.sizes()));
}

OutputSpec generator_spec() { return make_output_spec(DType::UInt64, {2}, {1}); }

size_t fresh_returns(const OpInfo& info) {
  return static_cast<size_t>(std::count(info.return_alias.begin(), info.return_alias.end(), -1));
}

// Gradients that were not asked for. Kernels return none; the decompositions that stand for some of
// them on the meta device do.
void drop_unasked(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments, IValues& results) {
  if (arguments.empty() || info.op.schema().arguments().back().name() != "output_mask" ||
      !arguments.back().isBoolList()) {
    return;
  }
  const c10::List<bool> asked = arguments.back().toBoolList();
  for (size_t i = 0; i < std::min(results.size(), asked.size()); ++i) {
    if (!asked[i]) {
      results[i] = at::Tensor();
    }
  }
}

// What the functional operator returns, on meta (or CPU zero) tensors.
std::optional<IValues> learn_results(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (info.mutates()) {
    std::optional<IValues> own =
        run_checked(info, info.op, IValues(arguments.begin(), arguments.end()));
    if (!info.has_functional) {
      // The host call runs the operator on copies and hands these back after its own returns.
      IValues results;
      if (fresh_returns(info) > 0) {
        if (!own) {
          return std::nullopt;
        }
        for (size_t i = 0; i < info.return_alias.size(); ++i) {
          if (info.return_alias[i] < 0) {
            results.push_back((*own)[i]);
          }
        }
      }
      for (size_t argument : info.mutated) {
        results.push_back(arguments[argument]);
      }
      return results;
    }
  }
  IValues functional = functional_arguments(info, arguments);
  std::optional<IValues> results = run_checked(info, info.functional, functional);
  if (results) {
    drop_unasked(info, arguments, *results);
  }
  return results;
}

void add_results(const OpInfo& info, const IValues& returned, Draft& draft) {
  size_t fresh = fresh_returns(info);
  auto add = [&](const at::Tensor& tensor, int argument, int element) {
    CallPlan::Result result;
    result.argument = argument;
    result.element = element;
    result.output = tensor.defined() ? static_cast<int>(draft.signature.outputs.size()) : -1;
    draft.signature.outputs.push_back(spec_of(tensor));
    draft.plan.results.push_back(result);
  };
  for (size_t r = 0; r < returned.size(); ++r) {
    int argument = r < fresh ? -1 : static_cast<int>(info.mutated[r - fresh]);
    std::vector<at::Tensor> tensors = flatten_tensors({returned[r]});
    bool list = returned[r].isList();
    if (r < fresh) {
      draft.plan.return_lengths.push_back(list ? static_cast<int>(tensors.size()) : -1);
    }
    for (size_t e = 0; e < tensors.size(); ++e) {
      add(tensors[e], argument, list ? static_cast<int>(e) : -1);
    }
  }
}

bool indexes_by_mask(const OpInfo& info, const Call& call) {
  if (!info.has_indices) {
    return true;
  }
  return std::any_of(call.tensors.begin() + 1, call.tensors.end(), [](c10::TensorImpl* tensor) {
    DType dtype = c10::typeMetaToScalarType(tensor->dtype());
    return dtype == DType::Bool || dtype == DType::Byte;
  });
}

void choose_tier(const OpInfo& info, Draft& draft) {
  if (info.lowering != nullptr) {
    draft.signature.tier = Tier::Direct;
    draft.signature.lower = info.lowering->function;
    draft.signature.cheap = (info.lowering->flags & kCheap) != 0;
    return;
  }
  draft.signature.tier = Tier::Host;
  draft.plan.recorded = host_calls_available();
}

bool writes_one_value(const OpInfo& info) {
  const std::string& name = info.op.schema().name();
  return info.name == "aten::fill_.Scalar" || name == "aten::zero_";
}

bool writes_expanded(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  if (writes_one_value(info)) {
    return false;
  }
  for (size_t argument : info.mutated) {
    for (const at::Tensor& tensor : flatten_tensors({arguments[argument]})) {
      for (int64_t i = 0; tensor.defined() && i < tensor.dim(); ++i) {
        if (tensor.size(i) > 1 && tensor.stride(i) == 0 && tensor.numel() != 0) {
          return true;
        }
      }
    }
  }
  return false;
}

bool memory_is_the_hosts() { return pjrt::client().host_memory() && !spmd_enabled(); }

// An in-place operator never changes its tensor's shape (a few CPU kernels do, by accident). What
// else writes its arguments (an observer its ranges) gives them their size with the first call.
void check_written_shapes(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments,
                          const Draft& draft) {
  for (const CallPlan::Result& result : draft.plan.results) {
    if (result.argument < 0 || result.output < 0 || info.resizes_outputs || info.resizes_state) {
      continue;
    }
    const c10::IValue& argument = arguments[result.argument];
    const at::Tensor& written =
        result.element < 0 ? argument.toTensor() : argument.toListRef()[result.element].toTensor();
    c10::IntArrayRef sizes(draft.signature.outputs[result.output].sizes);
    TORCH_CHECK(written.sizes() == sizes, info.name, ": output with shape ", written.sizes(),
                " doesn't match the broadcast shape ", sizes);
  }
}

CallPlanPtr make_plan(const OpInfo& info, const Call& call, c10::ArrayRef<c10::IValue> arguments) {
  Draft draft;
  CallPlan& plan = draft.plan;
  plan.op = info.serial;
  plan.key.assign(call.key.begin(), call.key.end());
  TORCH_CHECK_NOT_IMPLEMENTED(!info.returns_view, info.name,
                              " makes a view, which is not supported on the xla device: use a "
                              "copy (",
                              info.name, " on .cpu(), or a strided view)");
  check_device(call.device);
  if (writes_expanded(info, arguments)) {
    TORCH_CHECK(memory_is_the_hosts(),
                "unsupported operation: more than one element of the written-to tensor refers to a "
                "single memory location. Please clone() the tensor before performing the "
                "operation. (",
                info.name, ")");
    plan.recorded = false;
    plan.in_memory = true;
    return std::make_shared<const CallPlan>(std::move(plan));
  }
  bool dynamic = info.dynamic_shape && (info.lowering == nullptr || indexes_by_mask(info, call));
  bool out_without_functional = info.resizes_outputs && !info.has_functional;
  plan.recorded = false;
  if (dynamic || !info.only_tensor_returns || out_without_functional) {
    return std::make_shared<const CallPlan>(std::move(plan));
  }
  std::optional<IValues> returned = learn_results(info, arguments);
  if (!returned || returned->size() != fresh_returns(info) + info.mutated.size()) {
    return std::make_shared<const CallPlan>(std::move(plan));
  }
  plan.recorded = true;
  draft.signature.op = info.has_functional ? info.functional_name : info.name;
  build_arguments(info, call, arguments, draft);
  add_results(info, *returned, draft);
  check_written_shapes(info, arguments, draft);
  choose_tier(info, draft);
  if (info.random) {
    draft.signature.random = true;
    draft.signature.operands.push_back({DType::UInt64, {2}, {1}, 0});
    draft.signature.outputs.push_back(generator_spec());
  }
  plan.signature = intern(std::move(draft.signature));
  register_host_op(*plan.signature, info.has_functional ? info.functional : info.op);
  return std::make_shared<const CallPlan>(std::move(plan));
}

// The plans of calls that come again; those of shapes that never do are forgotten.
class Plans {
 public:
  CallPlanPtr find(const OpInfo& info, const Call& call) {
    MutexLock lock(mutex_);
    CallPlanPtr* known = recent_.find(hash(info, call));
    const bool fits =
        known != nullptr && (*known)->op == info.serial &&
        std::equal((*known)->key.begin(), (*known)->key.end(), call.key.begin(), call.key.end());
    return fits ? *known : nullptr;
  }

  void add(const OpInfo& info, const Call& call, CallPlanPtr plan) {
    MutexLock lock(mutex_);
    recent_.get_or_add(hash(info, call), nullptr) = std::move(plan);
  }

  size_t size() {
    MutexLock lock(mutex_);
    return recent_.size();
  }

 private:
  static uint64_t hash(const OpInfo& info, const Call& call) {
    return call.hash ^ (info.serial * 0x9E3779B97F4A7C15ull);
  }

  Mutex mutex_;
  RecentMap<uint64_t, CallPlanPtr> recent_ GUARDED_BY(mutex_){kMostPlans};
};

Plans& plans() {
  static auto* instance = new Plans;
  return *instance;
}

// A plan asks several kernels, all of which may warn of the same. What is not recorded then runs a
// kernel, which warns itself.
class WarningsOfAsking : public c10::WarningHandler {
 public:
  WarningsOfAsking() : outer_(c10::WarningUtils::get_warning_handler()), guard_(this) {}
  ~WarningsOfAsking() override {
    for (const c10::Warning& warning : given_) {
      outer_->process(warning);
    }
  }
  WarningsOfAsking(const WarningsOfAsking&) = delete;
  WarningsOfAsking& operator=(const WarningsOfAsking&) = delete;

  void process(const c10::Warning& warning) override {
    if (std::none_of(given_.begin(), given_.end(),
                     [&](auto& given) { return given.msg() == warning.msg(); })) {
      given_.push_back(warning);
    }
  }
  void forget() { given_.clear(); }
  bool none() const { return given_.empty(); }

 private:
  c10::WarningHandler* outer_;
  std::vector<c10::Warning> given_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace

CallPlanPtr find_plan(const OpInfo& info, const Call& call, c10::ArrayRef<c10::IValue> arguments) {
  CallPlanPtr plan = plans().find(info, call);
  if (plan == nullptr) {
    WarningsOfAsking warnings;
    plan = make_plan(info, call, arguments);
    if (!plan->recorded) {
      warnings.forget();
    }
    if (warnings.none()) {  // the others are to warn each time
      plans().add(info, call, plan);
    }
  }
  return plan;
}

size_t plan_count() { return plans().size(); }

}  // namespace torch_xla
