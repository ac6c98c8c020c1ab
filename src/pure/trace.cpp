#include "pure/trace.h"

#include "base/error.h"
#include "base/hasher.h"
#include "base/location.h"
#include "execution/sync.h"
#include "graph/collect.h"
#include "pure/gradient.h"
#include "pure/host_watch.h"
#include "pure/key.h"
#include "pure/wire.h"
#include "record/call.h"
#include "values/internal_ops.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace torch_xla {

namespace {

std::atomic<void (*)()> garbage_collector{nullptr};
std::atomic<HeldFinder> held_finder{nullptr};
std::atomic<bool (*)(const at::Tensor&)> held_check{nullptr};

// Casts that autocast keeps would outlive the trace.
class WithoutAutocastCache {
 public:
  WithoutAutocastCache() : before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~WithoutAutocastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  WithoutAutocastCache(const WithoutAutocastCache&) = delete;
  WithoutAutocastCache& operator=(const WithoutAutocastCache&) = delete;

 private:
  bool before_;
};

// Hooks on saved tensors are for the values that a call keeps, not for those of the trace.
class WithoutSavedTensorHooks {
 public:
  WithoutSavedTensorHooks() : before_(at::SavedTensorDefaultHooks::get_tls_state()) {
    at::SavedTensorDefaultHooks::set_tls_state({});
  }
  ~WithoutSavedTensorHooks() { at::SavedTensorDefaultHooks::set_tls_state(before_); }
  WithoutSavedTensorHooks(const WithoutSavedTensorHooks&) = delete;
  WithoutSavedTensorHooks& operator=(const WithoutSavedTensorHooks&) = delete;

 private:
  at::impl::SavedTensorDefaultHooksTLS before_;
};

class Tracer {
 public:
  Tracer(const std::string& name, const Tensors& arguments)
      : name_(name),
        arguments_(arguments),
        scope_(std::make_shared<TraceScope>(name, device_of_arguments(), current_scope_ptr())),
        place_(location_of(last_location()).str()) {
    trace_.scope = scope_;
  }

  std::shared_ptr<PureEntry> run(const std::shared_ptr<PureCallee>& callee) {
    try {
      {
        ScopeGuard guard(scope_);
        HostWatch watch;
        WithoutAutocastCache no_cache;
        WithoutSavedTensorHooks no_hooks;
        trace_.arguments = as_leaves(arguments_);
        register_arguments();
        trace_.results = callee->run(trace_.arguments);
        check_results();
        check_effects();
        learn_gradients();
        if (at::GradMode::is_enabled()) {
          differentiate();
        }
      }
      std::shared_ptr<PureEntry> entry = wire_entry(name_, trace_, arguments_);
      entry->callee = callee;
      close();
      check_escapes();
      return entry;
    } catch (...) {
      close();
      throw;
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error("the pure function " + name_ + " (called at " + place_ + ") " + why);
  }

  int device_of_arguments() const {
    return arguments_.empty() ? current_device() : arguments_[0].device().index();
  }

  void register_arguments() {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].is_leaf() && arguments_[i].requires_grad()) {
        trace_.arguments[i].mutable_grad() = arguments_[i].grad();
        scope_->watch_gradient(trace_.arguments[i]);
      }
    }
    TraceLock lock;
    for (const at::Tensor& leaf : trace_.arguments) {
      value_of(*leaf.unsafeGetTensorImpl());
    }
    trace_.argument_storages = scope_->all_outside().size();
  }

  static bool is_spoilt(const at::Tensor& result) {
    if (result.requires_grad()) {
      try {
        result.grad_fn();
      } catch (const c10::Error&) {
        return true;
      }
    }
    return false;
  }

  void check_results() {
    for (size_t i = 0; i < trace_.results.size(); ++i) {
      const at::Tensor& result = trace_.results[i];
      if (is_spoilt(result)) {
        trace_.spoilt.insert(i);
      }
      if (is_xla(result) && state_of(result)->scope != scope_ && result.requires_grad() &&
          !torch::autograd::impl::hooks(result).empty()) {
        refuse(
            "registers a hook on an argument, or on a view of what is outside, and returns it: "
            "register the hook on the result of the call");
      }
      if (!is_xla(result)) {
        refuse("returns a tensor on " + result.device().str() +
               ": results must be on the xla device, like its arguments");
      }
      if (is_view_of_marked(result)) {
        refuse(
            "calls requires_grad_() on a view of what is outside, and returns a view of that: "
            "clone it first");
      }
      note_outside(result);
    }
  }

  // Whether its gradient leads to a leaf that lies outside and was made one here: to another result
  // that is no argument, or to what the function has made of an argument.
  bool is_view_of_marked(const at::Tensor& result) const {
    if (!result.requires_grad() || result.is_leaf() || state_of(result)->scope == scope_) {
      return false;
    }
    if (result.is_view()) {
      const at::Tensor base(result._base());
      if (base.is_leaf() && is_made_of_argument(trace_, base) && argument_of(base) < 0) {
        return true;
      }
    }
    auto is = [&](const at::Tensor& other) {
      return other.requires_grad() && other.is_leaf() && state_of(other) == state_of(result);
    };
    return std::any_of(trace_.results.begin(), trace_.results.end(), is) &&
           std::none_of(trace_.arguments.begin(), trace_.arguments.end(), is);
  }

  // A tensor from outside may be handed back without any operator having read it.
  void note_outside(const at::Tensor& tensor) const {
    if (state_of(tensor)->scope != scope_) {
      TraceLock lock;
      value_of(*tensor.unsafeGetTensorImpl());
    }
  }

  // What a later call could not repeat.
  void check_effects() {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const at::Tensor& before = arguments_[i];
      const at::Tensor& after = trace_.arguments[i];
      std::string which = "tensor argument " + std::to_string(i);
      if (state_of(before) != state_of(after) || before.sizes() != after.sizes() ||
          before.strides() != after.strides() ||
          before.storage().nbytes() != after.storage().nbytes()) {
        refuse("changes the shape or storage of " + which +
               " in place: return a new tensor instead");
      }
      if (after.is_leaf() && after.requires_grad() &&
          (!torch::autograd::impl::hooks(after).empty() ||
           torch::autograd::impl::post_acc_grad_hooks(after) != nullptr)) {
        refuse("registers a hook on an argument, " + which +
               ", which would have one more after each call: register it before the call");
      }
      if (before.requires_grad() == after.requires_grad()) {
        continue;
      }
      if (!after.is_leaf()) {
        refuse("writes a value that requires gradients into " + which +
               " in place: return it instead, or detach it first");
      }
      if (!after.requires_grad()) {
        refuse("calls requires_grad_(False) of " + which + ": pass it detached instead");
      }
      trace_.marked.push_back(static_cast<int32_t>(i));
    }
    std::vector<at::Tensor> spoilt;
    {
      TraceLock lock;
      for (const TraceScope::Outside& entry : scope_->all_outside()) {
        for (size_t i = 0; i < entry.handles.size(); ++i) {
          if (!entry.handles[i].is_leaf() && !entry.required_grad[i]) {
            spoilt.push_back(entry.handles[i]);
          }
        }
      }
    }
    for (at::Tensor& tensor : spoilt) {
      tensor.detach_();
    }
    if (!spoilt.empty()) {
      refuse(
          "writes a value that requires gradients into a tensor from outside in place: return "
          "it instead, or detach it first");
    }
  }

  // What became of the gradients of leaves. New ones are results that follow those returned.
  void learn_gradients() {
    trace_.returned = trace_.results.size();
    std::vector<TraceScope::Leaf> leaves;
    {
      TraceLock lock;
      leaves = scope_->leaves();
    }
    for (int32_t marked : trace_.marked) {
      leaves.push_back({trace_.arguments[marked], arguments_[marked].grad()});
    }
    for (const TraceScope::Leaf& leaf : leaves) {
      if (is_of_this_call(leaf.tensor)) {
        leaf.tensor.mutable_grad() = leaf.gradient;
        continue;
      }
      const at::Tensor& now = leaf.tensor.grad();
      Trace::Leaf learnt{place_of_gradient(leaf.tensor), leaf.gradient};
      learnt.changed = !now.is_same(leaf.gradient);
      if (learnt.changed && now.defined()) {
        check_gradient(now);
        learnt.result = static_cast<int32_t>(trace_.results.size());
        trace_.results.push_back(now);
      }
      trace_.leaves.push_back(std::move(learnt));
    }
  }

  // `x.detach().requires_grad_()` of what was there before: the next call makes another one, and
  // nobody can ask this one for its gradient.
  bool is_of_this_call(const at::Tensor& leaf) const {
    auto is_leaf = [&](const at::Tensor& result) { return result.is_same(leaf); };
    auto* is_held = held_check.load();
    return is_held != nullptr && leaf.has_storage() && leaf.storage().use_count() > 1 &&
           argument_of(leaf) < 0 &&
           std::none_of(trace_.results.begin(), trace_.results.end(), is_leaf) && !is_held(leaf);
  }

  // Which argument it is, or -1.
  int32_t argument_of(const at::Tensor& tensor) const {
    for (size_t i = 0; i < trace_.arguments.size(); ++i) {
      if (trace_.arguments[i].is_same(tensor)) {
        return static_cast<int32_t>(i);
      }
    }
    return -1;
  }

  PureEntry::Place place_of_gradient(const at::Tensor& leaf) const {
    const int32_t argument = argument_of(leaf);
    return {argument < 0 ? leaf : at::Tensor(), argument, true};
  }

  void check_gradient(const at::Tensor& gradient) const {
    if (!is_xla(gradient) || state_of(gradient)->scope != scope_) {
      refuse(
          "sets the gradient of a tensor to a tensor from outside: a later call would set the same "
          "one again. Copy it in the function");
    }
    if (gradient.requires_grad()) {
      refuse(
          "leaves gradients that require gradients themselves (backward(create_graph=True)): "
          "use torch.autograd.grad for those, and return what you need");
    }
  }

  Tensors gradient_sources() {
    Tensors sources;
    std::unordered_map<const c10::TensorImpl*, bool> known;
    // A view that is older than its base's requires_grad_() says that it requires gradients, too,
    // and has no place for them.
    auto has_place = [](const at::Tensor& tensor) {
      return tensor.requires_grad() && torch::autograd::impl::gradient_edge(tensor).is_valid();
    };
    auto add = [&](const at::Tensor& tensor, int32_t argument, int32_t result = -1) {
      if (has_place(tensor) && known.try_emplace(tensor.unsafeGetTensorImpl(), true).second) {
        sources.push_back(tensor);
        trace_.sources.push_back({argument, tensor, result});
      }
    };
    for (size_t i = 0; i < trace_.arguments.size(); ++i) {
      add(trace_.arguments[i], static_cast<int32_t>(i));
    }
    Tensors handles;
    {
      TraceLock lock;
      for (const TraceScope::Outside& entry : scope_->all_outside()) {
        handles.insert(handles.end(), entry.handles.begin(), entry.handles.end());
      }
    }
    for (const at::Tensor& handle : handles) {
      if (!is_made_of_argument(trace_, handle)) {
        add(handle, -1);
      }
    }
    for (size_t i = 0; i < trace_.results.size(); ++i) {
      const at::Tensor& result = trace_.results[i];
      if (result.is_leaf()) {
        add(result, -1, static_cast<int32_t>(i));
      }
    }
    return sources;
  }

  void differentiate() {
    Tensors sources = gradient_sources();
    if (sources.empty()) {
      return;
    }
    for (size_t i = 0; i < trace_.results.size(); ++i) {
      const at::Tensor& result = trace_.results[i];
      if (!trace_.spoilt.contains(i) && can_require_grad(result) && result.grad_fn() != nullptr &&
          state_of(result)->scope == scope_) {
        trace_.differentiable.push_back(static_cast<int32_t>(i));
      }
    }
    if (trace_.differentiable.empty()) {
      return;
    }
    try {
      find_gradients(sources);
    } catch (const c10::Error& error) {
      if (is_second_backward(error)) {
        return_without_gradients();
        return;
      }
      set_refused_apart(sources);
      find_gradients(sources);
    }
    at::NoGradGuard no_grad;
    for (at::Tensor& gradient : trace_.gradients) {
      if (!gradient.defined()) {
        continue;
      }
      gradient = gradient.resolve_conj().resolve_neg();
      if (!covers_storage(gradient)) {
        gradient = gradient.clone(at::MemoryFormat::Contiguous);
      }
      note_outside(gradient);
    }
  }

  void find_gradients(const Tensors& sources) {
    Tensors results;
    trace_.tangents.clear();
    for (int32_t i : trace_.differentiable) {
      results.push_back(trace_.results[i]);
      trace_.tangents.push_back(make_tangent(results.back()));
    }
    trace_.gradients = results.empty() ? Tensors(sources.size())
                                       : gradients_of(results, trace_.tangents, sources, false);
  }

  // Results that PyTorch does not differentiate: an operator has no derivative, or a value that it
  // needs was changed. It says so to those who ask for their gradients, and so do we.
  void set_refused_apart(const Tensors& sources) {
    for (int32_t i : std::exchange(trace_.differentiable, {})) {
      const at::Tensor& result = trace_.results[i];
      try {
        gradients_of({result}, {make_tangent(result)}, sources, false);
        trace_.differentiable.push_back(i);
      } catch (const c10::Error& error) {
        trace_.refused.push_back({i, error.what_without_backtrace()});
      }
    }
  }

  static bool is_second_backward(const c10::Error& error) {
    return std::string_view(error.what()).find("a second time") != std::string_view::npos;
  }

  // The function has used up its own graph, as a training step does.
  void return_without_gradients() {
    for (int32_t i : trace_.differentiable) {
      trace_.results[i] = trace_.results[i].detach();
    }
    trace_.differentiable.clear();
    trace_.sources.clear();
    trace_.tangents.clear();
  }

  // An incoming gradient: dense, of the result's sizes.
  at::Tensor make_tangent(const at::Tensor& result) {
    Dims strides = row_major_strides(result.sizes());
    at::Tensor tangent =
        empty_tensor(result.scalar_type(), result.sizes(), strides, scope_->device);
    TensorType type{result.scalar_type(), Dims(result.sizes().begin(), result.sizes().end())};
    TraceLock lock;
    assign_value(*tangent.unsafeGetTensorImpl(), {make_parameter_node(type), 0});
    return tangent;
  }

  // Nothing outside has changed: leaves get back the gradients they had.
  void restore_gradients() {
    std::vector<TraceScope::Leaf> leaves;
    {
      TraceLock lock;
      leaves = scope_->leaves();
    }
    for (const TraceScope::Leaf& leaf : leaves) {
      leaf.tensor.mutable_grad() = leaf.gradient;
    }
  }

  void close() {
    restore_gradients();
    Trace dropped = std::move(trace_);
    trace_ = Trace();
    dropped.scope.reset();
    { Trace dead = std::move(dropped); }
    at::Generator generator = std::move(scope_->generator);
    scope_->generator = at::Generator();
    TraceScope::Reached reached;  // dropped without the lock
    TraceLock lock;
    reached = scope_->close();
  }

  void check_escapes() {
    auto first_alive = [&]() -> std::optional<uint32_t> {
      TraceLock lock;
      return scope_->own.empty() ? std::nullopt : std::optional(made_at(**scope_->own.begin()));
    };
    std::optional<uint32_t> alive = first_alive();
    // Autograd's threads may still be letting go of the last gradients.
    for (int attempt = 0; alive && attempt < 20; ++attempt) {
      if (attempt == 1 && garbage_collector.load() != nullptr) {
        garbage_collector.load()();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1 + attempt));
      alive = first_alive();
    }
    if (!alive) {
      return;
    }
    if (HeldFinder find_held = held_finder) {
      const at::Tensor held = find_held([&](const at::Tensor& it) { return is_of_trace(it); });
      if (!held.defined()) {
        forget_unreachable();
        return;
      }
      TraceLock lock;
      alive = made_at(*state_of(held));
    }
    refuse("keeps the tensor made at " + location_of(*alive).str() +
           " in a variable or attribute that outlives the call; a later call would not run this "
           "line again. Return the tensor instead");
  }

  static uint32_t made_at(const StorageState& state) REQUIRES(trace_mutex) {
    return state.value() ? state.value().node->location : 0;
  }

  bool is_of_trace(const at::Tensor& tensor) const {
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const StatePtr* state =
        is_xla(tensor) && impl.has_storage() ? find_state(impl.storage()) : nullptr;
    return state != nullptr && (*state)->scope == scope_;
  }

  // What a graph of autograd keeps that leads back to itself: `x.mul_(x.abs())` keeps x, as on the
  // CPU, for good.
  void forget_unreachable() const {
    TraceLock lock;
    for (StorageState* state : scope_->own) {
      state->set_value({});
    }
  }

  const std::string name_;
  const Tensors& arguments_;
  ScopePtr scope_;
  const std::string place_;
  Trace trace_;
};

}  // namespace

void set_garbage_collector(void (*collect)()) { garbage_collector = collect; }

void set_held_finder(HeldFinder find_held) { held_finder = find_held; }

void set_held_check(bool (*is_held)(const at::Tensor&)) { held_check = is_held; }

std::shared_ptr<PureEntry> trace_function(const std::string& name,
                                          const std::shared_ptr<PureCallee>& callee,
                                          const Tensors& arguments) {
  return Tracer(name, arguments).run(callee);
}

}  // namespace torch_xla
