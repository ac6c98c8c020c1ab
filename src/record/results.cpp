#include "record/results.h"

#include "base/mutex.h"
#include "record/plain_shapes.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace torch_xla {

namespace {

using c10::DispatchKey;
using c10::impl::ExcludeDispatchKeyGuard;
using c10::impl::IncludeDispatchKeyGuard;

// In this mode, which PyTorch has for tests, each call of an operator comes to `answer`.
constexpr DispatchKey kAnswering = DispatchKey::TESTING_ONLY_GenericMode;
// The form of a structured kernel for any device: it calls the first part, and then the operator
// that writes results to tensors made so (`out=`).
constexpr DispatchKey kStructured = DispatchKey::CompositeExplicitAutogradNonFunctional;
constexpr DispatchKey kComposite = DispatchKey::CompositeExplicitAutograd;

constexpr DispatchKey kImplicit = DispatchKey::CompositeImplicitAutograd;

thread_local bool in_structured_kernel = false;
thread_local bool python_is_refused = false;

struct OnlyPythonTells : std::exception {};

// Whether PyTorch's meta kernel is one that its Python package registered. Any thread. One that is
// registered after the first question changes who is asked first, not what is answered.
class PythonKernels {
 public:
  bool contain(const c10::OperatorHandle& op) {
    // Under the lock: what the dispatcher hands out is noted in the kernel, without one of its own.
    MutexLock lock(mutex_);
    const auto [found, is_new] = known_.try_emplace(op.operator_name(), false);
    constexpr DispatchKey kMeta = DispatchKey::Meta;
    if (is_new && op.hasComputedKernelForDispatchKey(kMeta)) {
      found->second =
          op.getComputedKernelForDispatchKey(kMeta).debug().find(".py:") != std::string::npos;
    }
    return found->second;
  }

 private:
  Mutex mutex_;
  std::unordered_map<c10::OperatorName, bool> known_ GUARDED_BY(mutex_);
};

bool python_tells(const c10::OperatorHandle& op) {
  static auto* kernels = new PythonKernels;
  return kernels->contain(op);
}

class Meanwhile {
 public:
  Meanwhile(bool& flag, bool value) : flag_(flag), before_(std::exchange(flag, value)) {}
  ~Meanwhile() { flag_ = before_; }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  bool& flag_;
  bool before_;
};

class Kernel {
 public:
  explicit Kernel(bool structured) : structured_(in_structured_kernel, structured) {}

 private:
  Meanwhile structured_;
  IncludeDispatchKeyGuard mode_{kAnswering};
};

bool writes_to_outputs(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return !arguments.empty() && arguments.back().is_out();
}

// Of tensors without data, or of a new one.
bool is_about_meta(const IValues& arguments) {
  const std::vector<at::Tensor> tensors = flatten_tensors(arguments);
  const auto on_meta = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_meta();
  };
  const auto asks_for_meta = [](const c10::IValue& value) {
    return value.isDevice() && value.toDevice().is_meta();
  };
  return std::any_of(tensors.begin(), tensors.end(), on_meta) ||
         std::any_of(arguments.begin(), arguments.end(), asks_for_meta);
}

// A structured kernel has nothing left to do once its outputs are made.
void answer(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto arguments = stack->end() - static_cast<int64_t>(schema.arguments().size());
  const IValues given(arguments, stack->end());
  std::optional<IValues> results;
  if (!writes_to_outputs(schema)) {
    results = is_about_meta(given) ? results_in_cpp(op, given) : std::nullopt;
  } else if (in_structured_kernel) {
    results = IValues(given.end() - static_cast<int64_t>(schema.returns().size()), given.end());
  }
  if (!results && !in_structured_kernel && op.hasKernelForDispatchKey(kImplicit)) {
    op.callBoxedForDispatchKey(kImplicit, *stack);  // whose parts come here in turn
    return;
  }
  if (!results) {
    if (python_is_refused && is_about_meta(given) && python_tells(op)) {
      throw OnlyPythonTells();
    }
    ExcludeDispatchKeyGuard computing(kAnswering);
    op.callBoxed(stack);
    return;
  }
  stack->erase(arguments, stack->end());
  stack->insert(stack->end(), results->begin(), results->end());
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&answer>());
}

std::optional<IValues> run_structured(const c10::OperatorHandle& op, const IValues& arguments) {
  if (!is_structured(op)) {
    return std::nullopt;
  }
  Kernel structured(true);
  IValues stack = arguments;
  op.callBoxedForDispatchKey(kStructured, stack);
  return stack;
}

// Whether a result lies in order that has the sizes of an argument that does not: it was made empty
// and resized, by a meta kernel that does not look at how the arguments lie.
bool may_have_lost_order(const IValues& arguments, const IValues& results) {
  for (const at::Tensor& argument : flatten_tensors(arguments)) {
    if (!argument.defined() || argument.is_contiguous()) {
      continue;
    }
    for (const at::Tensor& result : flatten_tensors(results)) {
      if (result.defined() && result.is_contiguous() && result.sizes() == argument.sizes()) {
        return true;
      }
    }
  }
  return false;
}

// The code that the CPU would run consists of calls of other operators, as structured kernels
// without one of the CPU's do. PyTorch's meta kernels for such operators are Python's, and their
// first call imports its compiler: two seconds.
std::optional<IValues> run_composite(const c10::OperatorHandle& op, const IValues& arguments) {
  const DispatchKey composite = op.hasKernelForDispatchKey(kComposite) ? kComposite : kStructured;
  if (!op.hasKernelForDispatchKey(composite) || op.hasKernelForDispatchKey(DispatchKey::CPU)) {
    return std::nullopt;
  }
  try {
    Kernel in_parts(false);
    IValues stack = arguments;
    op.callBoxedForDispatchKey(composite, stack);
    return may_have_lost_order(arguments, stack) ? std::nullopt : std::optional(std::move(stack));
  } catch (const c10::Error&) {
    return std::nullopt;  // it looks at values, or has a complaint that the meta kernel shares
  }
}

}  // namespace

bool is_structured(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(kStructured) && op.hasKernelForDispatchKey(DispatchKey::CPU);
}

std::optional<IValues> results_in_cpp(const c10::OperatorHandle& op,
                                      const IValues& meta_arguments) {
  std::optional<IValues> results = plain_results(op, meta_arguments);
  return results ? results : results_of_kernels(op, meta_arguments);
}

std::optional<IValues> results_of_kernels(const c10::OperatorHandle& op,
                                          const IValues& meta_arguments) {
  at::AutoDispatchBelowADInplaceOrView guard;
  std::optional<IValues> results = run_structured(op, meta_arguments);
  return results ? results : run_composite(op, meta_arguments);
}

std::optional<IValues> results_without_python(const c10::OperatorHandle& op,
                                              const IValues& meta_arguments) {
  Meanwhile refused(python_is_refused, true);
  try {
    return results_of_kernels(op, meta_arguments);
  } catch (const OnlyPythonTells&) {
    return std::nullopt;
  }
}

}  // namespace torch_xla
