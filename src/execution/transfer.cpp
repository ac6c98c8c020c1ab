// Values between host memory and storages.
#include "base/error.h"
#include "execution/export.h"
#include "execution/growth.h"
#include "execution/placement.h"
#include "execution/settings.h"
#include "execution/sync.h"
#include "host_ops/kernel_call.h"
#include "metrics/metrics.h"
#include "sharding/spmd.h"
#include "tiers/reading_habit.h"
#include "timeline/timeline.h"
#include "trace/scope.h"
#include "values/internal_ops.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <numeric>

namespace torch_xla {

namespace {

// Memory that runs out is PyTorch's error to those who copy.
template <typename Copy>
auto with_torch_errors(const Copy& copy) {
  try {
    return copy();
  } catch (const OutOfMemoryError& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
  }
}

// Bools promise to be 0 or 1 to programs; seen as bools, other bytes are made that.
bool are_bools(const at::Tensor& dense) {
  const auto* bytes = static_cast<const uint8_t*>(dense.const_data_ptr());
  return std::accumulate(bytes, bytes + dense.nbytes(), uint8_t{0}, std::bit_or<>()) <= 1;
}

// The bytes of a dense CPU tensor as a leaf.
DeviceDataPtr leaf_from_cpu(const at::Tensor& dense, TensorType frame, int device,
                            bool private_copy) {
  if (frame.dtype == DType::Bool && !are_bools(dense)) {
    frame.dtype = DType::Byte;
  }
  growth::before_upload(device, frame.nbytes());
  metrics::Timed timed(metrics::metric("TransferToDeviceTime"));
  timeline::Scope span(timeline::Kind::Upload, {}, frame.nbytes());
  metrics::metric("OutboundData", metrics::Unit::Bytes).add(static_cast<double>(frame.nbytes()));
  // Sent by the first program that reads it: by then it may have been marked, and whoever
  // interprets until then updates it in place.
  if (spmd_enabled() || interprets_first()) {
    return c10::make_intrusive<DeviceData>(frame, device,
                                           (private_copy ? dense : dense.clone()).storage());
  }
  std::shared_ptr<void> keep_alive;
  if (private_copy) {
    keep_alive = std::make_shared<at::Tensor>(dense);
  }
  return with_torch_errors([&] {
    return c10::make_intrusive<DeviceData>(pjrt::client().buffer_from_host(
        dense.const_data_ptr(), frame, device, std::move(keep_alive), pjrt::Client::Bytes::Given));
  });
}

// The value's bytes as a flat CPU tensor, in place where the device's memory is the host's.
at::Tensor frame_on_host(DeviceData& data) {
  static metrics::Metric& time = metrics::metric("TransferFromDeviceTime");
  static metrics::Metric& bytes = metrics::metric("InboundData", metrics::Unit::Bytes);
  metrics::Timed timed(time);
  const TensorType& type = data.type;
  bytes.add(static_cast<double>(type.nbytes()));
  auto options = at::TensorOptions().dtype(type.dtype);
  if (pjrt::client().host_memory()) {
    auto host = [&] {
      timeline::Scope wait(timeline::Kind::Wait);
      return data.host();
    }();
    timeline::Scope span(timeline::Kind::Download, {}, type.nbytes());
    return cpu_tensor(std::move(host), type.dtype, {type.numel()}, {1}, 0);
  }
  pjrt::BufferPtr buffer = data.buffer();
  {
    timeline::Scope wait(timeline::Kind::Wait);
    buffer->await_ready();
  }
  timeline::Scope span(timeline::Kind::Download, {}, type.nbytes());
  if (type.numel() == 0) {
    return at::empty({0}, options);
  }
  at::Tensor flat = at::empty({type.numel()}, options);
  buffer->copy_to_host(flat.mutable_data_ptr(), flat.nbytes());
  return flat;
}

// The tensor's window of a storage's value on the host.
at::Tensor window_on_host(at::Tensor flat, const at::Tensor& tensor) {
  const size_t needed = tensor.storage().nbytes();
  if (flat.nbytes() < needed) {
    at::Tensor whole = at::zeros({static_cast<int64_t>(needed)}, flat.options().dtype(at::kByte));
    whole.narrow(0, 0, static_cast<int64_t>(flat.nbytes())).copy_(flat.view(at::kByte));
    flat = whole;
  }
  return cpu_tensor(flat.storage(), tensor.scalar_type(), tensor.sizes(), tensor.strides(),
                    tensor.storage_offset());
}

}  // namespace

bool covers_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.nbytes() == tensor.storage().nbytes() &&
         is_dense_permutation(tensor.sizes(), tensor.strides());
}

namespace {

// The memory of a value without a node, for as long as this lives.
class LentMemory {
 public:
  explicit LentMemory(const at::Tensor& tensor) {
    if (!is_traced_or_exported()) {
      state_ = state_of(tensor).get();
      lent_ = state_->host.borrow();
    }
  }
  ~LentMemory() {
    if (lent_.defined()) {
      state_->give_back(std::move(lent_));
    }
  }
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  bool fits(const at::Tensor& tensor) const {
    return lent_.defined() && lent_.scalar_type() == tensor.scalar_type() &&
           lent_.storage().nbytes() >= tensor.storage().nbytes();
  }
  at::Tensor window(const at::Tensor& tensor) const {
    return cpu_tensor(lent_.storage(), tensor.scalar_type(), tensor.sizes(), tensor.strides(),
                      tensor.storage_offset());
  }

 private:
  StorageState* state_ = nullptr;
  at::Tensor lent_;
};

}  // namespace

void read_on_host(const at::Tensor& tensor,
                  const std::function<void(const at::Tensor& window)>& read) {
  at::AutoDispatchBelowADInplaceOrView guard;
  with_torch_errors([&] {
    auto read_window = [&](const at::Tensor& window) {
      tiers::ReadingHabit::of_this_thread().ends_stretch();
      window._set_conj(tensor.is_conj());
      window._set_neg(tensor.is_neg());
      read(window);
    };
    if (const LentMemory lent(tensor); lent.fits(tensor)) {
      read_window(lent.window(tensor));
      return;
    }
    const HeldData held = materialize_data(tensor);
    read_window(window_on_host(frame_on_host(*held.data()), tensor));
  });
}

at::Tensor to_cpu(const at::Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView guard;
  auto options = at::TensorOptions().dtype(tensor.scalar_type());
  at::Tensor result = is_dense_permutation(tensor.sizes(), tensor.strides())
                          ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                          : at::empty(tensor.sizes(), options);
  read_on_host(tensor, [&](const at::Tensor& window) { result.copy_(window); });
  return result;
}

at::Tensor upload(const at::Tensor& source, int device) {
  check_host_constant(source);
  at::AutoDispatchBelowADInplaceOrView guard;
  // What autograd makes for no gradient has no memory.
  at::Tensor dense = source._is_zerotensor() ? at::zeros(source.sizes(), source.options())
                                             : source.resolve_conj().resolve_neg();
  if (!is_dense_permutation(dense.sizes(), dense.strides())) {
    dense = dense.contiguous();
  }
  OutputSpec spec = make_output_spec(dense.scalar_type(), dense.sizes(), dense.strides());
  at::Tensor result = empty_tensor(spec.dtype, dense.sizes(), dense.strides(), device);
  set_leaf(result, leaf_from_cpu(dense, spec.frame, device, !dense.is_same(source)));
  return result;
}

void copy_from_cpu(const at::Tensor& destination, const at::Tensor& source) {
  at::AutoDispatchBelowADInplaceOrView guard;
  if (destination.numel() == 0) {
    return;
  }
  check_host_constant(source);
  int device = destination.device().index();
  bool plain = source.scalar_type() == destination.scalar_type() && !source.is_conj() &&
               !source.is_neg() && source.sizes() == destination.sizes() &&
               source.strides() == destination.strides();
  at::Tensor dense = source;
  if (!plain || !is_dense_permutation(source.sizes(), source.strides())) {
    auto options = at::TensorOptions().dtype(destination.scalar_type());
    dense = is_dense_permutation(destination.sizes(), destination.strides())
                ? at::empty_strided(destination.sizes(), destination.strides(), options)
                : at::empty(destination.sizes(), options);
    dense.copy_(source);
  }
  OutputSpec spec = make_output_spec(dense.scalar_type(), dense.sizes(), dense.strides());
  auto data = leaf_from_cpu(dense, spec.frame, device, !dense.is_same(source));
  if (covers_storage(destination)) {
    keep_sharding(destination, *data);
    set_leaf(destination, std::move(data));
    return;
  }
  TraceLock lock;
  write_value(destination, {std::move(data), 0}, spec);
}

}  // namespace torch_xla
