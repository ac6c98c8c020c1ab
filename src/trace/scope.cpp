#include "trace/scope.h"

#include "base/error.h"
#include "base/location.h"
#include "trace/tensor.h"
#include "values/internal_ops.h"

#include <ATen/ops/_local_scalar_dense.h>

#include <atomic>
#include <cmath>

namespace torch_xla {

namespace {

constexpr std::string_view kScopeName = "torch_xla trace";
const c10::DebugInfoKind kScopeKind(&kScopeName);

std::atomic<int> active_scopes{0};
std::atomic<int64_t> next_serial{1};
constexpr int64_t kComputed = int64_t{1} << 31;  // in what a number is known by
std::atomic<std::optional<int64_t> (*)(const at::Tensor&)> number_finder{nullptr};

// Stands for "no scope": PyTorch's guard ignores a null one.
const ScopePtr& no_scope() {
  static auto* sentinel = new ScopePtr(std::make_shared<TraceScope>("", 0, nullptr));
  return *sentinel;
}

const TraceScope* scope_of(const StorageState& state) {
  return static_cast<const TraceScope*>(state.scope.get());  // nothing else owns storages
}

bool is_visible(const TraceScope* owner, const TraceScope* from) {
  while (from != nullptr && from != owner) {
    from = from->parent.get();
  }
  return from == owner && (owner == nullptr || !owner->closed());
}

TensorType flat_type(const c10::TensorImpl& tensor) {
  auto element = static_cast<int64_t>(tensor.dtype().itemsize());
  auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  return {c10::typeMetaToScalarType(tensor.dtype()), {bytes / element}};
}

const Value& own_value(StorageState& state, const c10::TensorImpl& tensor) REQUIRES(trace_mutex) {
  if (!state.value()) {
    state.set_value(make_zeros(flat_type(tensor)));
  }
  return state.value();
}

// The type of the storage's value as the scopes around `scope` see it.
TensorType outer_type(StorageState& state, const c10::TensorImpl& tensor, TraceScope* scope)
    REQUIRES(trace_mutex) {
  TraceScope* outer = scope->parent.get();
  if (outer != nullptr && state.scope.get() != outer) {
    return outer->outside(state, outer_type(state, tensor, outer)).current.type();
  }
  return state.value() ? state.value().type() : flat_type(tensor);
}

TraceScope::Outside& outside_of(TraceScope& scope, StorageState& state, c10::TensorImpl& tensor)
    REQUIRES(trace_mutex) {
  return scope.outside(state, outer_type(state, tensor, &scope));
}

}  // namespace

void HostConstants::add(const at::Tensor& tensor) {
  MutexLock lock(mutex_);
  storages_.insert(tensor.storage().unsafeGetStorageImpl());
}

void HostConstants::remove(const at::Tensor& tensor) {
  MutexLock lock(mutex_);
  storages_.erase(tensor.storage().unsafeGetStorageImpl());
}

bool HostConstants::contains(const at::Tensor& tensor) const {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return true;
  }
  MutexLock lock(mutex_);
  return storages_.count(tensor.storage().unsafeGetStorageImpl()) != 0;
}

TraceScope::TraceScope(std::string name, int device, std::shared_ptr<TraceScope> parent)
    : name(std::move(name)),
      device(device),
      parent(std::move(parent)),
      generator(this->parent ? this->parent->generator : at::Generator()),
      serial_(next_serial.fetch_add(1)) {}

int64_t TraceScope::add_number(double value) {
  TraceLock lock;
  numbers_.push_back(value);
  return serial_ << 32 | static_cast<int64_t>(numbers_.size() - 1);
}

size_t TraceScope::number_count() const {
  TraceLock lock;
  return numbers_.size();
}

int64_t TraceScope::add_computed(const at::Tensor& number) {
  TORCH_CHECK(number.scalar_type() == at::kDouble && number.dim() == 0,
              "a number that a trace computes is a double without dimensions");
  at::Tensor kept = number;
  TraceLock lock;
  computed_.push_back(std::move(kept));
  return serial_ << 32 | kComputed | static_cast<int64_t>(computed_.size() - 1);
}

std::optional<TraceNumber> number_of_trace(std::optional<int64_t> known_by) {
  TraceScope* scope = current_scope();
  return scope == nullptr || !known_by ? std::nullopt : scope->number(*known_by);
}

std::optional<TraceNumber> TraceScope::number(int64_t known_by) const {
  TraceLock lock;
  const bool is_computed = (known_by & kComputed) != 0;
  const auto index = static_cast<size_t>(known_by & (kComputed - 1));
  if (known_by >> 32 != serial_ || index >= (is_computed ? computed_.size() : numbers_.size())) {
    return std::nullopt;
  }
  if (is_computed) {
    return TraceNumber{Number::of(1.0), computed_[index].unsafeGetTensorImpl()};
  }
  TraceNumber found{Number::of(numbers_[index]), {}};
  found.number.parameter = static_cast<int32_t>(index);
  return found;
}

void set_number_finder(std::optional<int64_t> (*find)(const at::Tensor&)) { number_finder = find; }

std::optional<TraceNumber> number_behind(const at::Tensor& wrapped) {
  if (current_scope() == nullptr || number_finder.load() == nullptr ||
      wrapped.scalar_type() != at::kDouble ||
      !std::isnan(at::_local_scalar_dense(wrapped).toDouble())) {
    return std::nullopt;
  }
  return number_of_trace(number_finder.load()(wrapped));
}

void TraceScope::watch_gradient(const at::Tensor& leaf) {
  if (leaf.is_leaf() && leaf.requires_grad() &&
      known_leaves_.insert(leaf.unsafeGetTensorImpl()).second) {
    leaves_.push_back({leaf, leaf.grad()});
  }
}

TraceScope::Outside& TraceScope::outside(StorageState& state, const TensorType& type) {
  auto [found, inserted] = index_.try_emplace(&state, outside_.size());
  if (inserted) {
    Value parameter{make_parameter_node(type), 0};
    outside_.push_back({state.shared_from_this(), {}, {}, {}, parameter, parameter});
  }
  return outside_[found->second];
}

const TraceScope::Outside* TraceScope::known(const StorageState& state) const {
  auto found = index_.find(&state);
  return found == index_.end() ? nullptr : &outside_[found->second];
}

void TraceScope::add_handle(Outside& entry, c10::TensorImpl& tensor) {
  for (const at::Tensor& known : entry.handles) {
    if (known.unsafeGetTensorImpl() == &tensor) {
      return;
    }
  }
  at::Tensor handle(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(&tensor));
  // A view made during the trace is not there at the next call: its base is. One that was set_() to
  // the storage since has no base there, and brings its own along.
  at::Tensor base = handle.is_view() ? at::Tensor(handle._base()) : handle;
  if (!base.is_alias_of(handle)) {
    base = without_lazy_bits(handle);
  }
  for (const at::Tensor& known : entry.handles) {
    if (known.is_same(base)) {
      return;
    }
  }
  watch_gradient(base);
  entry.required_grad.push_back(base.requires_grad());
  entry.handles.push_back(std::move(base));
}

TraceScope::Reached TraceScope::close() {
  closed_ = true;
  index_.clear();
  return {std::exchange(outside_, {}), std::exchange(leaves_, {}), std::exchange(computed_, {})};
}

TraceScope* current_scope() {
  if (active_scopes.load(std::memory_order_relaxed) == 0) {
    return nullptr;
  }
  auto* scope = static_cast<TraceScope*>(c10::ThreadLocalDebugInfo::get(kScopeKind));
  return scope == no_scope().get() ? nullptr : scope;
}

ScopePtr current_scope_ptr() {
  TraceScope* scope = current_scope();
  return scope == nullptr ? nullptr : scope->shared_from_this();
}

ScopeGuard::ScopeGuard(ScopePtr scope)
    : guard_(kScopeKind, scope == nullptr ? no_scope() : std::move(scope)) {
  ++active_scopes;
}

ScopeGuard::~ScopeGuard() { --active_scopes; }

void check_scope(const StorageState& state) {
  if (is_visible(scope_of(state), current_scope())) {
    return;
  }
  throw Error("this tensor was made while the pure function " + scope_of(state)->name +
              " was being traced and has no value outside of it (used at " +
              location_of(last_location()).str() +
              "): return it from the function instead of keeping it in a variable or attribute");
}

namespace {

// What the calling thread's scope knows of the tensor's storage; null if that is the scope's own.
TraceScope::Outside* find_outside(StorageState& state, c10::TensorImpl& tensor)
    REQUIRES(trace_mutex) {
  TraceScope* scope = current_scope();
  if (state.scope.get() == scope) {
    return nullptr;
  }
  check_scope(state);
  return &outside_of(*scope, state, tensor);
}

}  // namespace

const Value& value_of(c10::TensorImpl& tensor) {
  StorageState& state = *state_of(tensor);
  TraceScope::Outside* entry = find_outside(state, tensor);
  if (entry == nullptr) {
    return own_value(state, tensor);
  }
  current_scope()->add_handle(*entry, tensor);
  return entry->current;
}

const Value& value_of_state(c10::TensorImpl& tensor, const at::Generator& generator) {
  StorageState& state = *state_of(tensor);
  TraceScope::Outside* entry = find_outside(state, tensor);
  if (entry == nullptr) {
    return own_value(state, tensor);
  }
  entry->generator = generator;
  return entry->current;
}

const Value& value_of(StorageState& state) {
  TraceScope* scope = current_scope();
  if (state.scope.get() == scope) {
    return state.value();
  }
  check_scope(state);
  return scope->outside(state, state.value().type()).current;
}

bool holds_bools(const c10::TensorImpl& tensor) {
  const StorageState& state = *state_of(tensor);
  for (const TraceScope* scope = current_scope(); scope != nullptr; scope = scope->parent.get()) {
    if (const TraceScope::Outside* entry = scope->known(state)) {
      return entry->current.type().dtype == DType::Bool;
    }
  }
  const DType dtype =
      state.value() ? state.value().type().dtype : c10::typeMetaToScalarType(tensor.dtype());
  return dtype == DType::Bool;
}

void assign_value(c10::TensorImpl& tensor, Value value) {
  StorageState& state = *state_of(tensor);
  TraceScope::Outside* entry = find_outside(state, tensor);
  if (entry == nullptr) {
    state.set_value(std::move(value));
    return;
  }
  if (!entry->generator.defined()) {
    current_scope()->add_handle(*entry, tensor);
  }
  if (!value) {
    throw Error("the pure function " + current_scope()->name + " cannot be traced: at " +
                location_of(last_location()).str() +
                ", a tensor from outside the function was resized to nothing");
  }
  entry->current = std::move(value);
}

void refuse_while_tracing(const char* what) {
  TraceScope* scope = current_scope();
  if (scope == nullptr) {
    return;
  }
  throw Error("the pure function " + scope->name + " cannot be traced: at " +
              location_of(current_location()).str() + ", " + what);
}

void check_host_constant(const at::Tensor& tensor) {
  TraceScope* scope = current_scope();
  if (scope == nullptr || scope->host_constants.contains(tensor)) {
    return;
  }
  refuse_while_tracing(
      "the value of a CPU tensor was read that was not made in the function from plain numbers "
      "alone (it is closed over, random, or from numpy); a later call would not read it again. "
      "Move the tensor to the device outside of the function, with .to('xla')");
}

}  // namespace torch_xla
