#include "trace/tensor.h"

#include "base/pool.h"
#include "ir/window.h"
#include "metrics/metrics.h"
#include "pjrt/host_malloc.h"
#include "pjrt/live_buffers.h"
#include "trace/scope.h"
#include "values/frame.h"
#include "values/internal_ops.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace torch_xla {

namespace {

// Addresses come from a range that no process maps. They are never reused, so that two storages
// alive at different times cannot be confused either.
void* reserve_address(int64_t nbytes) {
  static std::atomic<uint64_t> next{uint64_t{1} << 56};
  uint64_t span = (static_cast<uint64_t>(std::max<int64_t>(nbytes, 1)) + 255) & ~uint64_t{255};
  return reinterpret_cast<void*>(next.fetch_add(span, std::memory_order_relaxed));
}

// The context of a DataPtr is the address of a StatePtr: of the state's own, or, where storages
// share a state, of one for each of the others.
void drop_state(void* context) {
  StatePtr dropped = std::move(*static_cast<StatePtr*>(context));
  dropped->count_storage(-1);
}
void delete_shared(void* context) {
  auto* shared = static_cast<StatePtr*>(context);
  (*shared)->count_storage(-1);
  delete shared;
}

c10::DataPtr make_data(int64_t nbytes, int device, StatePtr state) {
  StatePtr* context = &state->storage_reference;
  *context = std::move(state);
  return {reserve_address(nbytes), context, &drop_state, device_of(device)};
}

// PyTorch's own, of memory from the pools.
struct PooledStorage final : c10::StorageImpl {
  using c10::StorageImpl::StorageImpl;
  POOLED(PooledStorage)
};
struct PooledTensor final : c10::TensorImpl {
  using c10::TensorImpl::TensorImpl;
  POOLED(PooledTensor)
};

// What PyTorch asks when it makes or grows a storage itself, and about memory.
struct XlaAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    c10::impl::VirtualGuardImpl guard(c10::DeviceType::XLA);
    const int device = guard.getDevice().index();
    return make_data(static_cast<int64_t>(nbytes), device,
                     make_pooled<StorageState>(device, current_scope_ptr()));
  }
  c10::DeleterFnPtr raw_deleter() const override { return &drop_state; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "bytes of xla storages cannot be copied by address");
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { pjrt::release_freed_memory(); }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const auto memory = pjrt::memory_stats(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                        &stats.requested_bytes}) {
      auto& all = bytes->at(static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE));
      all.current = memory.bytes_in_use;
      all.peak = memory.peak_bytes;
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}  // nothing accumulates
  void resetPeakStats(c10::DeviceIndex device) override {
    pjrt::device_memory(device).reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto memory = pjrt::memory_stats(device);
    return {static_cast<size_t>(std::max<int64_t>(memory.bytes_limit - memory.bytes_in_use, 0)),
            static_cast<size_t>(memory.bytes_limit)};
  }
};

XlaAllocator& allocator() {
  static auto* instance = new XlaAllocator;
  return *instance;
}

const bool kRegistered = [] {
  c10::SetAllocator(c10::DeviceType::XLA, &allocator());
  return true;
}();

}  // namespace

bool is_xla(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::XLA;
}

const StatePtr* find_state(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  const bool ours = data.get_deleter() == &drop_state || data.get_deleter() == &delete_shared;
  return ours ? static_cast<StatePtr*>(data.get_context()) : nullptr;
}

const StatePtr& state_of(const c10::Storage& storage) {
  const StatePtr* state = find_state(storage);
  TORCH_CHECK(state != nullptr,
              "this storage is not one of the xla device (was its data pointer replaced?)");
  return *state;
}

const StatePtr& state_of(const c10::TensorImpl& tensor) {
  TORCH_CHECK(tensor.has_storage(), "an xla tensor without a storage cannot be used here");
  return state_of(tensor.storage());
}

const StatePtr& state_of(const at::Tensor& tensor) {
  return state_of(*tensor.unsafeGetTensorImpl());
}

Leeway leeway_of(const c10::TensorImpl& tensor) {
  if (!tensor.has_storage()) {
    return {};
  }
  auto nbytes = static_cast<int64_t>(tensor.unsafe_storage().nbytes());
  auto element = static_cast<int64_t>(tensor.dtype().itemsize());
  int64_t offset = tensor.storage_offset();
  if (offset == 0 && tensor.numel() * element == nbytes && tensor.is_contiguous()) {
    return {};  // the usual case
  }
  int64_t extent = nbytes / element;
  int64_t span = span_of(tensor.sizes(), tensor.strides());
  if (span == 0 || span >= extent || offset + span > extent) {
    return {};
  }
  bool crosses = crosses_rows(runs_of(tensor.sizes(), tensor.strides()), offset);
  return {extent, crosses ? Window::Lies::AcrossRows : Window::Lies::InRows};
}

Window window_of(const at::Tensor& tensor) {
  Window window;
  window.dtype = tensor.scalar_type();
  window.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  window.strides.assign(tensor.strides().begin(), tensor.strides().end());
  window.offset = tensor.numel() == 0 ? 0 : tensor.storage_offset();
  Leeway leeway = leeway_of(*tensor.unsafeGetTensorImpl());
  window.extent = leeway.extent;
  window.lies = leeway.lies;
  return window;
}

c10::Device device_of(int index) {
  return c10::Device(c10::DeviceType::XLA, static_cast<c10::DeviceIndex>(index));
}

namespace {

c10::Storage storage_with(int64_t nbytes, int device, StatePtr state) {
  return c10::Storage(c10::make_intrusive<PooledStorage>(
      c10::StorageImpl::use_byte_size_t(), nbytes, make_data(nbytes, device, std::move(state)),
      &allocator(), true));
}

}  // namespace

c10::Storage make_storage(int64_t nbytes, int device, Value value) {
  return storage_with(nbytes, device,
                      make_pooled<StorageState>(device, current_scope_ptr(), std::move(value)));
}

c10::Storage make_storage_on_host(at::Tensor host, int device) {
  const auto nbytes = static_cast<int64_t>(host.storage().nbytes());
  return storage_with(nbytes, device, make_pooled<StorageState>(device, std::move(host)));
}

c10::Storage share_storage(const c10::Storage& storage) {
  const StatePtr& state = state_of(storage);
  state->count_storage(1);
  c10::DataPtr data(const_cast<void*>(storage.data()), new StatePtr(state), &delete_shared,
                    storage.device());
  return c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data),
                      &allocator(), true);
}

at::Tensor make_tensor(c10::Storage storage, DType dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, int64_t offset) {
  static metrics::Counter& created = metrics::counter("CreateXlaTensor");
  created.add();
  at::Tensor tensor = at::detail::make_tensor<PooledTensor>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::XLA),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

at::Tensor without_lazy_bits(const at::Tensor& tensor) {
  return make_tensor(tensor.storage(), tensor.scalar_type(), tensor.sizes(), tensor.strides(),
                     tensor.storage_offset());
}

void check_device(int device) {
  int count = pjrt::device_count_hint();
  TORCH_CHECK(device < count, "xla:", device, " does not exist: there ",
              count == 1 ? "is 1 device" : "are " + std::to_string(count) + " devices",
              " (CPU_NUM_DEVICES sets how many the CPU plugin makes)");
}

void check_allocation(int64_t nbytes, int device) {
  constexpr int64_t kAlwaysFine = int64_t{1} << 30;
  if (nbytes <= kAlwaysFine) {
    return;
  }
  int64_t limit = pjrt::client().memory_stats(device).bytes_limit;
  TORCH_CHECK_WITH(OutOfMemoryError, limit <= 0 || nbytes <= limit, "tried to allocate ", nbytes,
                   " bytes on xla:", device, ", which has ", limit,
                   " bytes of memory: use smaller tensors");
}

at::Tensor empty_tensor(DType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, int device) {
  int64_t extent = product(sizes) == 0 ? 0 : 1;
  for (size_t i = 0; extent > 0 && i < sizes.size(); ++i) {
    extent += (sizes[i] - 1) * strides[i];
  }
  int64_t nbytes = extent * static_cast<int64_t>(c10::elementSize(dtype));
  check_allocation(nbytes, device);
  return make_tensor(make_storage(nbytes, device), dtype, sizes, strides);
}

void write_value(const at::Tensor& tensor, Value update, const OutputSpec& spec) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  DType dtype = tensor.scalar_type();
  const auto nbytes = static_cast<int64_t>(storage.nbytes());
  bool same_order = tensor.strides() == c10::IntArrayRef(spec.strides) || spec.sizes.empty();
  if (dtype == spec.dtype && tensor.storage_offset() == 0 && same_order &&
      tensor.sizes() == c10::IntArrayRef(spec.sizes) && spec.frame.nbytes() == nbytes) {
    assign_value(impl, std::move(update));
    return;
  }
  Window update_window{spec.dtype, spec.sizes, spec.strides, 0};
  Value base = value_of(impl);
  TensorType frame = base.type();
  if (frame.nbytes() < nbytes) {
    frame = resized_frame(frame.dtype, dtype, nbytes);
  }
  if (frame.dtype == DType::Bool && dtype != DType::Bool) {
    frame.dtype = DType::Byte;  // programs keep one bit of a bool's byte
  }
  Window window = window_of(tensor);
  if (window.extent > 0 && dtype == frame.dtype &&
      digits_in_frame(runs_of(window.sizes, window.strides), window.offset, frame.dims)) {
    window.lies = Window::Lies::InFrame;
  }
  assign_value(impl, make_write(std::move(base), window, std::move(update), update_window, frame));
}

void resize_storage(const at::Tensor& tensor, int64_t nbytes) {
  TORCH_CHECK(nbytes >= 0, "a storage cannot have ", nbytes, " bytes");
  check_allocation(nbytes, tensor.device().index());
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(static_cast<size_t>(nbytes));
  if (nbytes == 0) {
    TraceLock lock;
    assign_value(*tensor.unsafeGetTensorImpl(), {});
  }
}

void set_leaf(const at::Tensor& tensor, DeviceDataPtr data) {
  TraceLock lock;
  assign_value(*tensor.unsafeGetTensorImpl(), {std::move(data), 0});
}

}  // namespace torch_xla
