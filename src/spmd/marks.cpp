#include "spmd/marks.h"

#include "base/error.h"
#include "base/location.h"
#include "execution/placement.h"
#include "execution/sync.h"
#include "metrics/metrics.h"
#include "pjrt/sharded_buffer.h"
#include "sharding/spmd.h"
#include "trace/scope.h"
#include "values/internal_ops.h"

#include <ATen/ops/empty.h>

namespace torch_xla {

namespace {

std::string shape_text(c10::IntArrayRef sizes) {
  std::string text;
  for (int64_t size : sizes) {
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return "[" + text + "]";
}

std::string at_this_line() { return " (at " + location_of(last_location()).str() + ")"; }

// Is the tensor all of its storage? Then a mark belongs to the storage.
bool covers(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.nbytes() == tensor.storage().nbytes() &&
         is_dense_permutation(tensor.sizes(), tensor.strides());
}

OutputSpec spec_of(const at::Tensor& tensor) {
  return make_output_spec(tensor.scalar_type(), tensor.sizes(), tensor.strides());
}

Dims inverse(const Dims& order) {
  Dims result(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    result[order[i]] = static_cast<int64_t>(i);
  }
  return result;
}

void check_sharding(const at::Tensor& tensor, ShardingPtr sharding) {
  if (!spmd_enabled()) {
    throw Error("mark_sharding was called" + at_this_line() +
                " outside of SPMD mode: call torch_xla.runtime.use_spmd() first");
  }
  if (!sharding->is_tiled()) {
    return;
  }
  if (static_cast<int64_t>(sharding->tiles().size()) != tensor.dim()) {
    throw Error("a sharding of " + std::to_string(sharding->tiles().size()) + " dimensions, " +
                sharding->text() + ", was given for a tensor of shape " +
                shape_text(tensor.sizes()) + at_this_line() +
                ": it must have one entry per dimension");
  }
  if (static_cast<int>(sharding->devices().size()) != pjrt::partitions()) {
    throw Error("the sharding " + sharding->text() + " is over " +
                std::to_string(sharding->devices().size()) + " devices" + at_this_line() +
                ", but there are " + std::to_string(pjrt::partitions()) +
                ": a mesh must have every device once");
  }
}

// The tensor's own value as a row-major array of `frame`, or of its sizes.
Value read_as(const at::Tensor& tensor, const TensorType& frame) REQUIRES(trace_mutex) {
  const Value& value = value_of(*tensor.unsafeGetTensorImpl());
  if (value.type() == frame) {
    return value;
  }
  return make_read(value, {frame.dtype, frame.dims, row_major_strides(frame.dims), 0});
}

void check_conflict(const at::Tensor& tensor, const StorageState& state, ShardingPtr sharding)
    REQUIRES(trace_mutex) {
  const auto* known = state.annotation.get();
  if (known != nullptr && known->sharding->is_tiled() && known->sharding != sharding) {
    throw Error("a tensor of shape " + shape_text(tensor.sizes()) + " is marked as " +
                known->sharding->text() + " and cannot be marked as " + sharding->text() +
                at_this_line() +
                ": call clear_sharding first, or annotate_custom_sharding instead");
  }
}

void mark_storage(const at::Tensor& tensor, ShardingPtr sharding, Remark remark) {
  OutputSpec spec = spec_of(tensor);
  sharding = sharding->permuted(spec.frame_to_sizes);
  StorageState& state = *state_of(tensor);
  TraceLock lock;
  Value value = read_as(tensor, spec.frame);
  DeviceData* data = device_data(*value.node);
  if (data != nullptr && remark == Remark::Refused) {
    check_conflict(tensor, state, sharding);
  }
  bool outside = current_scope() != state.scope.get();  // of the trace being made
  bool marked = state.annotation && state.annotation->sharding == sharding;
  if (!outside) {
    state.annotation = std::make_unique<const StorageState::Annotation>(
        StorageState::Annotation{sharding, spec.frame});
  } else if (marked) {
    return;
  }
  if (data != nullptr && (data->reshard(sharding) || data->sharding() == sharding)) {
    assign_value(*tensor.unsafeGetTensorImpl(), std::move(value));
    return;
  }
  assign_value(*tensor.unsafeGetTensorImpl(), make_sharding(std::move(value), sharding));
}

// A part of a storage: this value is marked, not those that replace it.
void mark_window(const at::Tensor& tensor, ShardingPtr sharding) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) {
      throw Error("a tensor of shape " + shape_text(tensor.sizes()) +
                  " that shows the same elements several times (expand) cannot be marked" +
                  at_this_line() + ": call .contiguous() and mark the result");
    }
  }
  OutputSpec spec =
      make_output_spec(tensor.scalar_type(), tensor.sizes(), row_major_strides(tensor.sizes()));
  TraceLock lock;
  Value part = make_read(value_of(*tensor.unsafeGetTensorImpl()), window_of(tensor));
  write_value(tensor, make_sharding(std::move(part), sharding), spec);
}

at::Tensor new_tensor(const at::Tensor& like, c10::IntArrayRef sizes) {
  return empty_tensor(like.scalar_type(), sizes, row_major_strides(sizes), like.device().index());
}

Value row_major_value(const at::Tensor& tensor) REQUIRES(trace_mutex) {
  const Value& value = value_of(*tensor.unsafeGetTensorImpl());
  TensorType type{tensor.scalar_type(), Dims(tensor.sizes().begin(), tensor.sizes().end())};
  return value.type() == type && covers(tensor) && tensor.is_contiguous()
             ? value
             : make_read(value, window_of(tensor));
}

void mark_alike(const at::Tensor& target, const at::Tensor& source) REQUIRES(trace_mutex) {
  const StorageState& state = *state_of(source);
  StorageState& other = *state_of(target);
  if (!state.annotation || other.annotation || other.scope || !covers(source) || !covers(target) ||
      source.sizes() != target.sizes() || source.strides() != target.strides()) {
    return;
  }
  TensorType type = state.annotation->type;
  type.dtype = target.scalar_type();
  other.annotation = std::make_unique<const StorageState::Annotation>(
      StorageState::Annotation{state.annotation->sharding, std::move(type)});
}

}  // namespace

void mark_sharding(const at::Tensor& tensor, ShardingPtr sharding, Remark remark) {
  current_location();
  check_sharding(tensor, sharding);
  if (pjrt::partitions() == 1) {
    return;
  }
  LaunchTurn turn;
  if (covers(tensor)) {
    mark_storage(tensor, sharding, remark);
  } else {
    mark_window(tensor, sharding);
  }
}

void clear_sharding(const at::Tensor& tensor) {
  current_location();
  LaunchTurn turn;
  StorageState& state = *state_of(tensor);
  TraceLock lock;
  check_scope(state);
  if (!state.annotation) {
    return;
  }
  state.annotation.reset();
  const Value& value = state.value();
  DeviceData* data = value ? device_data(*value.node) : nullptr;
  if (data != nullptr &&
      (data->reshard(Sharding::replicated()) || data->sharding()->is_replicated())) {
    return;
  }
  if (value) {
    state.set_value(make_sharding(value, Sharding::replicated()));
  }
}

void mark_gradient(const at::Tensor& tensor) {
  if (is_xla(tensor.grad())) {
    TraceLock lock;
    mark_alike(tensor.grad(), tensor);
  }
}

void mark_copy(const at::Tensor& copy, const at::Tensor& source) {
  if (spmd_enabled()) {
    TraceLock lock;
    mark_alike(copy, source);
  }
}

ShardingPtr sharding_of(const at::Tensor& tensor) {
  if (!spmd_enabled() || !covers(tensor)) {
    return nullptr;
  }
  OutputSpec spec = spec_of(tensor);
  LaunchTurn turn;
  TraceLock lock;
  StorageState& state = *state_of(tensor);
  ShardingPtr sharding = nullptr;
  const Value& value = state.value();
  if (state.annotation && state.annotation->type == spec.frame) {
    sharding = state.annotation->sharding;
  } else if (value && value.type() == spec.frame) {
    if (DeviceData* data = device_data(*value.node)) {
      bool decided = data->sharding_is_free() || data->sharding()->is_tiled();
      sharding = decided ? data->sharding() : nullptr;
    } else {
      sharding = sharding_of_node(value);
    }
  }
  return sharding == nullptr ? nullptr : sharding->permuted(inverse(spec.frame_to_sizes));
}

std::vector<Shard> local_shards(const at::Tensor& tensor) {
  if (!covers(tensor)) {
    throw Error("a view of shape " + shape_text(tensor.sizes()) +
                " of another tensor has no shards of its own: take those of its base, or of a "
                "clone()");
  }
  pjrt::BufferPtr buffer = materialize(tensor);
  OutputSpec spec = spec_of(tensor);
  const TensorType& type = buffer->type();
  Dims order = inverse(spec.frame_to_sizes);
  std::vector<Shard> shards;
  auto add = [&](pjrt::Buffer& piece, ShardingPtr sharding, int64_t device) {
    auto options = at::TensorOptions().dtype(type.dtype);
    at::Tensor data = at::empty(piece.type().dims, options);
    if (data.nbytes() > 0) {
      piece.copy_to_host(data.mutable_data_ptr(), data.nbytes());
    }
    metrics::metric("InboundData", metrics::Unit::Bytes).add(static_cast<double>(data.nbytes()));
    Box box = sharding->box_of(type.dims, device), permuted = box;
    for (size_t i = 0; i < order.size(); ++i) {
      permuted.start[i] = box.start[order[i]];
      permuted.stop[i] = box.stop[order[i]];
    }
    shards.push_back({data.permute(order), permuted, device, sharding->replica_of(device)});
  };
  TORCH_CHECK(type == spec.frame, "the value of a tensor of shape ", tensor.sizes(),
              " is kept in another shape: clone() it first");
  if (buffer->sharding() == nullptr) {
    add(*buffer, Sharding::replicated(), 0);
    return shards;
  }
  const auto& pieces = static_cast<pjrt::ShardedBuffer&>(*buffer).pieces();
  for (const pjrt::BufferPtr& piece : pieces) {
    add(*piece, buffer->sharding(), piece->partition());
  }
  return shards;
}

void load_local_shards(const at::Tensor& tensor, const std::vector<at::Tensor>& pieces) {
  TORCH_CHECK(covers(tensor), "the shards of a view cannot be replaced: use its base");
  pjrt::BufferPtr buffer = materialize(tensor);
  auto* sharded = dynamic_cast<pjrt::ShardedBuffer*>(buffer.get());
  // The first words are PyTorch/XLA's, which people's tests look for.
  TORCH_CHECK(sharded != nullptr,
              "Cannot load local shards into a non sharded tensor: mark_sharding it first");
  TORCH_CHECK(sharded->pieces().size() == pieces.size(),
              "Shards must be provided for all local devices: expected ", sharded->pieces().size(),
              " shards, one a device, got ", pieces.size());
  TORCH_CHECK(!buffer->sharding()->is_replicated(),
              "Replicated tensor should not be loaded from _load_local_shards: its devices must "
              "hold the same; assign to it instead");
  OutputSpec spec = spec_of(tensor);
  std::vector<pjrt::BufferPtr> buffers;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const TensorType& type = sharded->pieces()[i]->type();
    at::Tensor piece = pieces[i].permute(spec.frame_to_sizes).to(type.dtype).contiguous();
    TORCH_CHECK(piece.sizes() == c10::IntArrayRef(type.dims),
                "Input shard shape must include padding: shard ", i, " has shape ", piece.sizes(),
                ", expected ", c10::IntArrayRef(type.dims));
    buffers.push_back(pjrt::client().buffer_from_host(piece.const_data_ptr(), type,
                                                      static_cast<int>(i), nullptr));
  }
  set_leaf(tensor, c10::make_intrusive<DeviceData>(std::make_shared<pjrt::ShardedBuffer>(
                       buffer->type(), buffer->sharding(), std::move(buffers))));
}

at::Tensor full_to_shard(const at::Tensor& tensor, ShardingPtr sharding) {
  current_location();
  check_sharding(tensor, sharding);
  auto sizes = sharding->shard_dims(tensor.sizes());
  at::Tensor piece = new_tensor(tensor, sizes);
  TraceLock lock;
  assign_value(*piece.unsafeGetTensorImpl(), make_to_shard(row_major_value(tensor), sharding));
  return piece;
}

at::Tensor shard_to_full(const at::Tensor& tensor, ShardingPtr sharding, c10::IntArrayRef sizes) {
  current_location();
  if (sharding->is_tiled() && sharding->tiles().size() != sizes.size()) {
    throw Error("a sharding of " + std::to_string(sharding->tiles().size()) +
                " dimensions was given for the full shape " + shape_text(sizes) + at_this_line());
  }
  if (c10::IntArrayRef(sharding->shard_dims(sizes)) != tensor.sizes()) {
    throw Error("pieces of shape " + shape_text(tensor.sizes()) + " sharded as " +
                sharding->text() + " do not make the full shape " + shape_text(sizes) +
                at_this_line());
  }
  at::Tensor whole = new_tensor(tensor, sizes);
  TensorType type{tensor.scalar_type(), Dims(sizes.begin(), sizes.end())};
  TraceLock lock;
  assign_value(*whole.unsafeGetTensorImpl(),
               make_from_shard(row_major_value(tensor), sharding, type));
  return whole;
}

}  // namespace torch_xla
