// A trace of a function that will be called again (pure/). While a scope is active on a thread,
// what the thread records becomes a computation instead of pending work: storages made inside
// belong to the scope, those from outside are read as parameters and written to a value that only
// the scope sees, so that a trace that fails leaves nothing behind.
//
// Threads: the active scope travels in c10::ThreadLocalDebugInfo, so that autograd's threads record
// into it too. The rest is guarded by the trace lock, but for what guards itself.
#pragma once

#include "base/mutex.h"
#include "values/state.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace torch_xla {

// CPU tensors that a trace made itself (pure/host_watch.h). Thread-safe.
class HostConstants {
 public:
  void add(const at::Tensor& tensor);
  void remove(const at::Tensor& tensor);
  bool contains(const at::Tensor& tensor) const;

 private:
  mutable Mutex mutex_;
  std::unordered_set<const c10::StorageImpl*> storages_ GUARDED_BY(mutex_);
};

// A number that a trace does not fix.
struct TraceNumber {
  Number number;
  c10::TensorImpl* computed = nullptr;  // its value, if the trace computes it, which keeps it
};

class TraceScope : public c10::DebugInfoBase,
                   public StateOwner,
                   public std::enable_shared_from_this<TraceScope> {
 public:
  // A storage that existed before the trace.
  struct Outside {
    StatePtr state;
    // How it was reached: the tensors, in order of first use, or the generator it belongs to.
    std::vector<at::Tensor> handles;
    std::vector<bool> required_grad;  // per handle, when it was first used
    at::Generator generator;
    Value parameter;  // its value at the start, a Parameter node
    Value current;    // its value now, as the trace sees it
    bool written() const { return !(current == parameter); }
  };

  // One whose gradient the function sets, clears or adds to.
  struct Leaf {
    at::Tensor tensor;
    at::Tensor gradient;  // when the trace began
  };

  TraceScope(std::string name, int device, std::shared_ptr<TraceScope> parent);

  const std::string name;
  const int device;
  const std::shared_ptr<TraceScope> parent;

  // Draws inside the trace come from this generator instead of the device's own, if defined.
  at::Generator generator;

  Outside& outside(StorageState& state, const TensorType& type) REQUIRES(trace_mutex);
  // What it knows of the storage so far, or null.
  const Outside* known(const StorageState& state) const REQUIRES(trace_mutex);
  const std::vector<Outside>& all_outside() const { return outside_; }
  // Remembers that the storage was reached through this tensor.
  void add_handle(Outside& entry, c10::TensorImpl& tensor);

  struct Reached {
    std::vector<Outside> outside;
    std::vector<Leaf> leaves;
    std::vector<at::Tensor> computed;
  };
  // The trace is over: its tensors can no longer be used, and whoever still holds one keeps nothing
  // else alive. Returns what it has seen, which may hold others of the trace (as gradients).
  Reached close() REQUIRES(trace_mutex);
  bool closed() const { return closed_; }

  HostConstants host_constants;

  // ---- numbers that each call gives anew (a learning rate) -----------------------------------
  // Adds one that is `value` now; returns what its users are known by (number_of_trace).
  int64_t add_number(double value) EXCLUDES(trace_mutex);
  size_t number_count() const EXCLUDES(trace_mutex);
  // Adds one that the trace computes: a double without dimensions.
  int64_t add_computed(const at::Tensor& number) EXCLUDES(trace_mutex);
  std::optional<TraceNumber> number(int64_t known_by) const EXCLUDES(trace_mutex);

  // ---- gradients that the function sets, clears or adds to -----------------------------------
  // To be told of tensors before their `grad` changes; those that the trace reads it finds itself.
  void watch_gradient(const at::Tensor& leaf);
  const std::vector<Leaf>& leaves() const { return leaves_; }

 private:
  bool closed_ = false;
  const int64_t serial_;
  std::vector<double> numbers_ GUARDED_BY(trace_mutex);
  std::vector<at::Tensor> computed_ GUARDED_BY(trace_mutex);
  std::vector<Leaf> leaves_;
  std::unordered_set<const c10::TensorImpl*> known_leaves_;
  std::vector<Outside> outside_;
  std::unordered_map<const StorageState*, size_t> index_;
};
using ScopePtr = std::shared_ptr<TraceScope>;

// The calling thread's scope, or null. Costs one relaxed load while nothing is traced anywhere.
TraceScope* current_scope();
ScopePtr current_scope_ptr();

// Makes a scope (or, null, none) the calling thread's for a while.
class ScopeGuard {
 public:
  explicit ScopeGuard(ScopePtr scope);
  ~ScopeGuard();
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  c10::DebugInfoGuard guard_;
};

// The value of the tensor's storage as the calling thread sees it; zeros if it was never written.
// Throws for tensors of a trace that is over.
const Value& value_of(c10::TensorImpl& tensor) REQUIRES(trace_mutex);
// The same for the storage that holds a generator's state.
const Value& value_of_state(c10::TensorImpl& tensor, const at::Generator& generator)
    REQUIRES(trace_mutex);
// The same for a storage without a tensor (a value kept for a gradient).
const Value& value_of(StorageState& state) REQUIRES(trace_mutex);
// Whether the value, as the calling thread sees it, is of bools: programs read nothing but 0 and 1
// out of it. One of a storage that was never written is what the tensor is of.
bool holds_bools(const c10::TensorImpl& tensor) REQUIRES(trace_mutex);
// Replaces the value of the tensor's storage.
void assign_value(c10::TensorImpl& tensor, Value value) REQUIRES(trace_mutex);

// The number that the calling thread's trace knows by this; nothing if it knows none.
std::optional<TraceNumber> number_of_trace(std::optional<int64_t> known_by) EXCLUDES(trace_mutex);
// The same for a Python number as PyTorch wraps it, which hides what it is. Without locks.
std::optional<TraceNumber> number_behind(const at::Tensor& wrapped);
// How the front end finds what a wrapped number is known by. Set once.
void set_number_finder(std::optional<int64_t> (*find)(const at::Tensor&));

// Throws when the calling thread is tracing: `what` completes "... was asked for".
void refuse_while_tracing(const char* what);
// Throws when the calling thread is tracing and the value of this CPU tensor, which the trace is
// about to read, may be another at the next call.
void check_host_constant(const at::Tensor& tensor);
// Throws when the storage belongs to a trace that the calling thread is not in.
void check_scope(const StorageState& state);

}  // namespace torch_xla
