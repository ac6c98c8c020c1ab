#include "pure/undo.h"

#include "base/error.h"
#include "base/location.h"
#include "trace/tensor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>

namespace torch_xla {

namespace {

// The bytes of a storage, as a tensor of this type.
at::Tensor tensor_of(const Value& value, const TensorType& type, int device) {
  at::Tensor tensor = empty_tensor(type.dtype, type.dims, row_major_strides(type.dims), device);
  TraceLock lock;
  assign_value(*tensor.unsafeGetTensorImpl(), value);
  return tensor;
}

}  // namespace

WriteMark::WriteMark() : scope_(current_scope_ptr()) {
  TORCH_CHECK(scope_ != nullptr, "WriteMark is for functions that are being traced");
  TraceLock lock;
  for (const TraceScope::Outside& entry : scope_->all_outside()) {
    outside_.push_back(entry.current);
  }
  for (StorageState* state : scope_->own) {
    StatePtr alive = state->weak_from_this().lock();  // another thread may be dropping it
    if (alive != nullptr && state->value()) {
      own_.push_back({std::move(alive), state->value()});
    }
  }
}

std::vector<WriteMark::Written> WriteMark::written() const {
  std::vector<Written> found;
  const std::vector<TraceScope::Outside>& outside = scope_->all_outside();
  for (size_t i = 0; i < outside.size(); ++i) {
    const Value& before = i < outside_.size() ? outside_[i] : outside[i].parameter;
    if (!(before == outside[i].current)) {
      found.push_back({outside[i].state, before, outside[i].current});
    }
  }
  for (const Known& known : own_) {
    if (!(known.value == known.state->value())) {
      found.push_back({known.state, known.value, known.state->value()});
    }
  }
  return found;
}

void WriteMark::undo_where(const at::Tensor& flag) const {
  at::NoGradGuard no_grad;
  std::vector<Written> changed;
  {
    TraceLock lock;
    changed = written();
  }
  for (const Written& it : changed) {
    const TensorType type = it.after.type();
    if (it.before.type().nbytes() != type.nbytes()) {
      throw Error("the pure function " + scope_->name + " cannot be traced: at " +
                  location_of(current_location()).str() +
                  ", a step that may be skipped changes the size of a tensor");
    }
    const at::Tensor kept = at::where(flag, tensor_of(it.before, type, it.state->device),
                                      tensor_of(it.after, type, it.state->device));
    TraceLock lock;
    Value value = value_of(*kept.unsafeGetTensorImpl());
    if (it.state->scope == scope_) {
      it.state->set_value(std::move(value));
    } else {
      scope_->outside(*it.state, type).current = std::move(value);
    }
  }
}

}  // namespace torch_xla
