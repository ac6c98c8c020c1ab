#include "record/op_info.h"

#include "host_ops/host_ops.h"
#include "record/plan.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

namespace torch_xla {

namespace {

using c10::Argument;
using c10::FunctionSchema;
using c10::OperatorHandle;

bool is_written(const Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

std::string full_name(const OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool is_tensor_option(const Argument& argument) {
  const std::string& name = argument.name();
  return name == "dtype" || name == "layout" || name == "device" || name == "pin_memory";
}

bool same_argument(const Argument& x, const Argument& y) {
  return x.name() == y.name() && *x.type() == *y.type();
}

// The arguments of `op` that a functional candidate takes, or nullopt if it is another operator.
std::optional<std::vector<int>> match(const FunctionSchema& schema, const FunctionSchema& candidate,
                                      bool is_out) {
  std::vector<int> wanted;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!(is_out && schema.arguments()[i].is_out())) {
      wanted.push_back(static_cast<int>(i));
    }
  }
  std::vector<int> source;
  size_t next = 0;
  for (const Argument& argument : candidate.arguments()) {
    if (is_written(argument)) {
      return std::nullopt;
    }
    if (next < wanted.size() && same_argument(schema.arguments()[wanted[next]], argument)) {
      source.push_back(wanted[next++]);
    } else if (is_out && is_tensor_option(argument)) {
      source.push_back(-1);
    } else {
      return std::nullopt;
    }
  }
  return next == wanted.size() ? std::optional(source) : std::nullopt;
}

// Names under which the registry may hold the functional form.
std::vector<std::string> candidate_names(const std::string& base, bool is_out) {
  std::string plain = base;
  if (!is_out && base.size() > 1 && base.back() == '_') {
    plain.pop_back();
  }
  // __iand__ and its like
  if (base.rfind("aten::__i", 0) == 0) {
    return {"aten::bitwise_" + base.substr(9, base.size() - 11)};
  }
  return {plain, plain + "_functional"};
}

std::vector<OperatorHandle> overloads(const std::string& name) {
  static auto* by_name = [] {
    auto* map = new std::unordered_map<std::string, std::vector<c10::OperatorName>>;
    for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
      (*map)[op.name].push_back(op);
    }
    return map;
  }();
  std::vector<OperatorHandle> result;
  auto found = by_name->find(name);
  if (found != by_name->end()) {
    for (const c10::OperatorName& op : found->second) {
      if (auto handle = c10::Dispatcher::singleton().findSchema(op)) {
        result.push_back(*handle);
      }
    }
  }
  return result;
}

bool returns_only_tensors(const FunctionSchema& schema) {
  for (const Argument& result : schema.returns()) {
    auto kind = result.type()->kind();
    bool list = kind == c10::TypeKind::ListType &&
                result.type()->castRaw<c10::ListType>()->getElementType()->kind() ==
                    c10::TypeKind::TensorType;
    if (kind != c10::TypeKind::TensorType && !list) {
      return false;
    }
  }
  return true;
}

void find_aliases(OpInfo& info, const FunctionSchema& schema) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (is_written(schema.arguments()[i])) {
      info.mutated.push_back(i);
      info.resizes_outputs = info.resizes_outputs || schema.arguments()[i].is_out();
    }
  }
  info.resizes_state = info.mutates() && !info.resizes_outputs && schema.name().back() != '_';
  for (const Argument& result : schema.returns()) {
    int alias = -1;
    if (result.alias_info() != nullptr) {
      for (size_t i : info.mutated) {
        if (schema.arguments()[i].alias_info()->beforeSets() == result.alias_info()->beforeSets()) {
          alias = static_cast<int>(i);
        }
      }
      info.returns_view = info.returns_view || alias < 0;
    }
    info.return_alias.push_back(alias);
  }
}

void find_functional(OpInfo& info, const FunctionSchema& schema) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    info.argument_source.push_back(static_cast<int>(i));
  }
  if (info.mutated.empty()) {
    return;
  }
  for (const std::string& name : candidate_names(schema.name(), info.resizes_outputs)) {
    for (const OperatorHandle& candidate : overloads(name)) {
      if (auto source = match(schema, candidate.schema(), info.resizes_outputs)) {
        info.functional = candidate;
        info.argument_source = *source;
        return;
      }
    }
  }
  info.has_functional = false;
}

// The form that takes a generator, for those that would draw from the CPU's.
OperatorHandle eager_form(const OperatorHandle& op) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (op.operator_name() == c10::OperatorName("aten::randperm", "")) {
    return dispatcher.findSchemaOrThrow("aten::randperm", "generator");
  }
  return op;
}

// PyTorch/XLA moved CPU tensors to the device where these meet them, and its users' programs lean
// on that. Elsewhere a mixture of devices is a mistake, as for all devices of PyTorch.
bool is_arithmetic(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::add",        "aten::sub",         "aten::rsub",       "aten::mul",
      "aten::div",        "aten::fmod",        "aten::pow",        "aten::bitwise_and",
      "aten::bitwise_or", "aten::bitwise_xor", "aten::__lshift__", "aten::__rshift__",
  };
  return names.count(name) > 0 || names.count(name.substr(0, name.size() - 1)) > 0;  // add, add_
}

}  // namespace

namespace {
std::atomic<uint64_t> next_serial{1};
}

OpInfo::OpInfo(const OperatorHandle& handle)
    : serial(next_serial.fetch_add(1)),
      op(handle),
      name(full_name(handle)),
      functional(handle),
      host{handle, {}, {}, false} {
  const FunctionSchema& schema = handle.schema();
  for (const Argument& argument : schema.arguments()) {
    scalar_arguments.push_back(is_scalar_argument(argument));
  }
  find_aliases(*this, schema);
  find_functional(*this, schema);
  functional_name = full_name(functional);
  only_tensor_returns = returns_only_tensors(schema);
  // This one kernel is tagged, but takes no dropout.
  random = handle.hasTag(at::Tag::nondeterministic_seeded) &&
           schema.name() != "aten::_scaled_dot_product_flash_attention_for_cpu";
  dynamic_shape =
      handle.hasTag(at::Tag::dynamic_output_shape) || handle.hasTag(at::Tag::data_dependent_output);
  has_indices = schema.name().find("index") != std::string::npos;
  places = find_place_rule(schema.name());
  takes_cpu_tensors = has_indices || is_arithmetic(schema.name());
  if (has_functional) {
    auto found = lower_table().find(functional_name);
    if (found != lower_table().end()) {
      lowering = &found->second;
    }
  }
  uint32_t flags = lowering != nullptr ? lowering->flags : static_cast<uint32_t>(kNone);
  bool has_tensor = std::any_of(
      schema.arguments().begin(), schema.arguments().end(), [](const Argument& argument) {
        return !argument.is_out() && argument.type()->str().find("Tensor") != std::string::npos;
      });
  static_numbers = (flags & kStaticNumbers) != 0 || !has_tensor;
  if (lowering != nullptr && !has_tensor && (flags & kStaticNumbers) == 0) {
    static_numbers = false;  // full and its like: the number is data
  }
  shape_only_self = (flags & kShapeOnlySelf) != 0;
  const bool is_slice = (flags & kSlice) != 0;
  if (is_slice) {
    slice = slice_arguments(schema);
  }
  moving = find_moving_rule(functional_name, is_slice);
  const c10::OperatorHandle form = eager_form(op);
  host = {form, mutated, return_alias, takes_cpu_tensors, faster_kernel(form)};
  std::string short_name = schema.name().substr(schema.name().find("::") + 2);
  counter = &metrics::counter((lowering != nullptr ? "xla::" : "aten::") + short_name);
}

namespace {

class OpInfos {
 public:
  OpInfos() {
    listener_ =
        c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>(*this));
  }
  OpInfo& of(const OperatorHandle& op) {
    MutexLock lock(mutex_);
    std::unique_ptr<OpInfo>& slot = infos_[op.operator_name()];
    if (!slot) {
      slot = std::make_unique<OpInfo>(op);
    }
    return *slot;
  }

 private:
  // Told of operators that are removed, as when a notebook's cell defines one again.
  struct Listener final : c10::OpRegistrationListener {
    explicit Listener(OpInfos& infos) : infos_(infos) {}
    void onOperatorRegistered(const OperatorHandle&) override {}
    void onOperatorDeregistered(const OperatorHandle& op) override {
      infos_.forget(op);
      forget_removed_ops();
    }
    OpInfos& infos_;
  };

  void forget(const OperatorHandle& op) {
    MutexLock lock(mutex_);
    for (auto info = infos_.begin(); info != infos_.end();) {
      if (info->second->op == op || info->second->functional == op) {
        retired_.push_back(std::move(info->second));
        info = infos_.erase(info);
      } else {
        ++info;
      }
    }
  }

  Mutex mutex_;
  std::unordered_map<c10::OperatorName, std::unique_ptr<OpInfo>> infos_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<OpInfo>> retired_
      GUARDED_BY(mutex_);  // other threads may be recording
  c10::RegistrationHandleRAII listener_{nullptr};
};

}  // namespace

OpInfo& op_info(const OperatorHandle& op) {
  static auto* infos = new OpInfos;
  return infos->of(op);
}

}  // namespace torch_xla
