#include "pure/decomposition.h"

#include "base/hasher.h"
#include "base/interrupt.h"
#include "base/mutex.h"
#include "pure/pure_function.h"
#include "record/meta.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>

#include <atomic>
#include <bit>
#include <unordered_map>
#include <unordered_set>

namespace torch_xla {

namespace {

std::atomic<Decomposer> front_end{nullptr};

// The operator has no decomposition.
struct Missing : std::exception {};

// An operator's arguments without their tensors, and its results without theirs.
class Arguments {
 public:
  explicit Arguments(torch::jit::Stack values) : values_(std::move(values)) {
    for (c10::IValue& value : values_) {
      read(value);
    }
  }

  bool understood() const { return understood_; }
  uint64_t key() const { return hasher_.low(); }
  const Tensors& tensors() const { return tensors_; }

  // Keeps the places of the tensors only.
  void forget_tensors() {
    values_ = with(Tensors(tensors_.size(), at::empty({0})));
    tensors_.clear();
  }

  torch::jit::Stack with(const Tensors& tensors) const {
    size_t next = 0;
    auto take = [&](const at::Tensor&) { return tensors[next++]; };
    torch::jit::Stack stack;
    for (const c10::IValue& value : values_) {
      stack.push_back(value.isDevice() ? value : map_tensors(value, take, c10::kCPU));
    }
    return stack;
  }

 private:
  void word(uint64_t bits) { hasher_.add(bits); }

  void read(const c10::IValue& value) {
    word(value.isTensor() ? 0 : static_cast<uint64_t>(value.isList()) + 1);
    if (value.isTensor()) {
      word(value.toTensor().defined() ? 1 : 0);
      if (value.toTensor().defined()) {
        understood_ = understood_ && is_xla(value.toTensor());
        tensors_.push_back(value.toTensor());
      }
    } else if (value.isList()) {
      word(value.toListRef().size());
      for (const c10::IValue& element : value.toListRef()) {
        read(element);
      }
    } else {
      read_plain(value);
    }
  }

  void read_plain(const c10::IValue& value) {
    if (value.isNone()) {
      word(1);
    } else if (value.isBool()) {
      word(value.toBool() ? 3 : 2);
    } else if (value.isInt()) {
      word(4);
      word(static_cast<uint64_t>(value.toInt()));
    } else if (value.isDouble()) {
      word(5);
      word(std::bit_cast<uint64_t>(value.toDouble()));
    } else if (value.isString()) {
      word(6);
      hasher_.add(std::string_view(value.toStringRef()));
    } else if (value.isDevice()) {
      word(7);
      word(static_cast<uint64_t>(value.toDevice().type()) << 8 |
           static_cast<uint8_t>(value.toDevice().index()));
    } else {
      understood_ = false;
    }
  }

  torch::jit::Stack values_;
  Tensors tensors_;
  Hasher hasher_;
  bool understood_ = true;
};

class DecompositionCallee : public PureCallee {
 public:
  DecompositionCallee(const c10::OperatorHandle& op, const Arguments& arguments)
      : op_(op), arguments_(arguments) {
    arguments_.forget_tensors();  // a trace around this one would see them outlive the call
  }

  Tensors run(const Tensors& tensors) override {
    torch::jit::Stack stack = arguments_.with(tensors);
    if (!front_end.load()(op_, &stack)) {
      throw Missing();
    }
    results_ = std::make_shared<Arguments>(std::move(stack));
    Tensors results = results_->tensors();
    results_->forget_tensors();
    return results;
  }

  std::shared_ptr<void> annotation() override { return results_; }

 private:
  const c10::OperatorHandle op_;
  Arguments arguments_;
  std::shared_ptr<Arguments> results_;
};

// The traces of one operator. Those without a decomposition, or whose decomposition reads values,
// are not asked again.
struct Known {
  explicit Known(const std::string& name) : traces(name) {}
  PureFunction traces;
  std::atomic<bool> missing{false}, untraceable{false};
};

Known& known(const c10::OperatorHandle& op) {
  static Mutex mutex;
  static auto* table = new std::unordered_map<std::string, std::unique_ptr<Known>>;
  std::string name = c10::toString(op.operator_name());
  MutexLock lock(mutex);
  std::unique_ptr<Known>& entry = (*table)[name];
  if (!entry) {
    entry = std::make_unique<Known>(name);
  }
  return *entry;
}

void call_traced(Known& operator_, const c10::OperatorHandle& op, const Arguments& arguments,
                 torch::jit::Stack* stack) {
  at::NoGradGuard no_grad;
  Tensors tensors = arguments.tensors();
  for (at::Tensor& tensor : tensors) {
    if (leeway_of(*tensor.unsafeGetTensorImpl()).extent > 0) {
      tensor = tensor.clone();  // a trace would be for this place in its storage
    }
  }
  auto query = PureFunction::query(arguments.key(), tensors);
  PureFunction::Traced traced = operator_.traces.find_or_trace(
      query, tensors, [&] { return std::make_shared<DecompositionCallee>(op, arguments); });
  Tensors results = call_entry(traced.entry, tensors);
  *stack = static_cast<const Arguments*>(traced.annotation.get())->with(results);
}

// Some decompositions call the very operator again.
class InProgress {
 public:
  explicit InProgress(const Known* operator_)
      : first_(stack_.insert(operator_).second), operator_(operator_) {}
  ~InProgress() {
    if (first_) {
      stack_.erase(operator_);
    }
  }
  InProgress(const InProgress&) = delete;
  InProgress& operator=(const InProgress&) = delete;
  bool first() const { return first_; }

 private:
  static thread_local std::unordered_set<const Known*> stack_;
  bool first_;
  const Known* operator_;
};
thread_local std::unordered_set<const Known*> InProgress::stack_;

bool decompose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Known& operator_ = known(op);
  InProgress progress(&operator_);
  if (operator_.missing || !progress.first()) {
    return false;
  }
  Arguments arguments(*stack);
  if (arguments.understood() && !arguments.tensors().empty() && !operator_.untraceable) {
    try {
      call_traced(operator_, op, arguments, stack);
      return true;
    } catch (const Missing&) {
      operator_.missing = true;
      return false;
    } catch (const CallNotDecomposed&) {
      return false;
    } catch (const std::exception& error) {
      if (is_interrupt(error)) {
        throw;
      }
      // It reads values, or the call is wrong: the decomposition itself says so below.
      operator_.untraceable = true;
    }
  }
  try {
    return front_end.load()(op, stack);
  } catch (const CallNotDecomposed&) {
    return false;
  }
}

}  // namespace

void set_traced_decomposer(Decomposer decomposer) {
  front_end = decomposer;
  set_decomposer(&decompose);
}

}  // namespace torch_xla
