// Kernels that concern storages rather than values: allocation, views, resizing, copies across
// devices, reading one element.
#include "eager/host_access.h"
#include "eager/mode.h"
#include "execution/export.h"
#include "execution/sync.h"
#include "metrics/metrics.h"
#include "record/call.h"
#include "record/eager_call.h"
#include "record/recorder.h"
#include "record/registration.h"
#include "spmd/marks.h"
#include "trace/region.h"
#include "trace/scope.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_linalg_check_errors_native.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/tensor_split.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/unsafe_split_native.h>
#include <ATen/ops/unsafe_split_with_sizes_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

using at::Tensor;

int device_index(std::optional<c10::Device> device) {
  int index = device && device->has_index() ? device->index() : current_device();
  check_device(index);
  return index;
}

void check_options(std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                   std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !dtype || (*dtype != at::kComplexHalf && !c10::isQIntType(*dtype)),
      "the xla device has no tensors of dtype ", *dtype, ": ",
      *dtype == at::kComplexHalf ? "use complex64" : "quantised ones stay on the CPU");
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == c10::kStrided,
                              "the xla device has only strided "
                              "tensors, received layout ",
                              *layout);
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
}

void check_sizes(c10::IntArrayRef sizes) {
  int64_t elements = 1;
  for (int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
    TORCH_CHECK(!c10::mul_overflows(elements, std::max<int64_t>(size, 1), &elements) &&
                    elements < (int64_t{1} << 56),
                "tried to allocate a tensor of sizes ", sizes, " on xla: too large");
  }
}

bool fills_memory() {
  return at::globalContext().deterministicAlgorithms() &&
         at::globalContext().deterministicFillUninitializedMemory();
}

// Memory that nobody has written, as PyTorch wants it of all devices.
Tensor unwritten(DType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, int device) {
  const bool at_once = eager::mode() == eager::Mode::Host;
  Tensor tensor = at_once ? eager::empty_on_host(dtype, sizes, strides, device)
                          : empty_tensor(dtype, sizes, strides, device);
  if (fills_memory()) {
    at::AutoDispatchBelowADInplaceOrView guard;
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

Tensor empty_memory_format(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                           std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                           std::optional<bool> pin_memory,
                           std::optional<c10::MemoryFormat> format) {
  check_options(dtype, layout, pin_memory);
  check_sizes(sizes);
  c10::DimVector strides = c10::contiguous_strides(sizes);
  if (format && *format == c10::MemoryFormat::ChannelsLast) {
    auto last = c10::get_channels_last_strides_2d(sizes);
    strides.assign(last.begin(), last.end());
  } else if (format && *format == c10::MemoryFormat::ChannelsLast3d) {
    auto last = c10::get_channels_last_strides_3d(sizes);
    strides.assign(last.begin(), last.end());
  }
  return unwritten(c10::dtype_or_default(dtype), sizes, strides, device_index(device));
}

Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                     std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                     std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  const DType type = c10::dtype_or_default(dtype);
  check_options(dtype, layout, pin_memory);
  check_sizes(sizes);
  at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type));  // throws of strides
  return unwritten(type, sizes, strides, device_index(device));
}

// PyTorch's gradients are copied into these when they are kept.
Tensor new_empty_strided(const Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return at::empty_strided(sizes, strides, dtype.value_or(self.scalar_type()),
                           layout.value_or(c10::kStrided), device.value_or(self.device()),
                           pin_memory);
}

// Grows the storage to what the tensor describes; what is new is filled where that is asked for.
void make_room(const Tensor& self) {
  size_t needed = at::detail::computeStorageNbytes(self.sizes(), self.strides(),
                                                   self.dtype().itemsize(), self.storage_offset());
  c10::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
  if (self.numel() > 0 && needed > storage->nbytes()) {
    check_allocation(static_cast<int64_t>(needed), self.device().index());
    const auto before = static_cast<int64_t>(storage->nbytes());
    storage->set_nbytes(needed);
    if (fills_memory()) {
      at::AutoDispatchBelowADInplaceOrView guard;
      at::native::fill_resize_deterministic_(self, before);
    }
  }
}

const Tensor& resize_(const Tensor& self, c10::IntArrayRef sizes,
                      std::optional<c10::MemoryFormat> format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  check_sizes(sizes);
  if (self.sizes() != sizes) {
    impl->set_sizes_contiguous(sizes);
  }
  if (format && *format != c10::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*format);
  }
  make_room(self);
  return self;
}

const Tensor& as_strided_(const Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                          std::optional<int64_t> offset) {
  int64_t start = offset.value_or(self.storage_offset());
  TORCH_CHECK(start >= 0, "as_strided_: negative storage offset ", start);
  at::native::checkInBoundsForStorage(sizes, strides, start, self.dtype(), self.storage());
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, start);
  return self;
}

// A loaded storage arrives as bytes. The first tensor on it says what they are, so that no program
// has to reinterpret them.
void name_elements(const StatePtr& state, const c10::Storage& storage, at::ScalarType dtype) {
  const auto nbytes = static_cast<int64_t>(storage.nbytes());
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  auto bytes = [&]() REQUIRES(trace_mutex) -> c10::intrusive_ptr<DeviceData> {
    const Value& value = state->value();
    DeviceData* data = value ? device_data(*value.node) : nullptr;
    const bool alone = data != nullptr && value.node.use_count() == 1;
    return alone && data->type == TensorType{at::kByte, {nbytes}}
               ? c10::intrusive_ptr<DeviceData>::reclaim_copy(data)
               : nullptr;
  };
  if (dtype == at::kByte || dtype == at::kBool || nbytes == 0 || nbytes % element != 0 ||
      current_scope() != nullptr || !pjrt::client_started() || !pjrt::client().host_memory()) {
    return;
  }
  DeviceDataPtr data;
  {
    TraceLock lock;
    data = bytes();
  }
  if (!data) {
    return;
  }
  auto typed = c10::make_intrusive<DeviceData>(TensorType{dtype, {nbytes / element}}, state->device,
                                               data->host(), data->sharding());
  TraceLock lock;
  if (state->value().node == data && data.use_count() == 2) {
    state->set_value({std::move(typed), 0});
  }
}

Tensor& set_source_storage(Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef sizes,
                           c10::IntArrayRef strides) {
  name_elements(state_of(source), source, self.scalar_type());  // refuses other devices' storages
  if (strides.empty() && !sizes.empty()) {
    strides = {};  // nullptr is what PyTorch's check knows none by
  }
  at::native::checkSetStorage<int64_t>(self, std::move(source), offset, sizes, strides);
  // Without strides a tensor of these sizes keeps its own, as on the CPU.
  c10::DimVector dense = self.sizes() == sizes
                             ? c10::DimVector(self.strides().begin(), self.strides().end())
                             : c10::DimVector(c10::contiguous_strides(sizes));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(
      sizes, strides.data() == nullptr ? c10::IntArrayRef(dense) : strides, offset);
  make_room(self);
  return self;
}

Tensor& set_whole_storage(Tensor& self, at::Storage source) {
  int64_t count = static_cast<int64_t>(source.nbytes()) / self.element_size();
  return set_source_storage(self, std::move(source), 0, {count}, {});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return self.is_same(source) ? self
                              : set_source_storage(self, source.storage(), source.storage_offset(),
                                                   source.sizes(), source.strides());
}

Tensor& set_nothing(Tensor& self) {
  return set_source_storage(self, make_storage(0, self.device().index()), 0, {0}, {});
}

// PyTorch's reads the places where they are, and wants them on the CPU.
std::vector<Tensor> tensor_split(const Tensor& self, const Tensor& places, int64_t dim) {
  TORCH_CHECK(places.scalar_type() == at::kLong && places.dim() <= 1,
              "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
              "one-dimensional long tensor, but got a ",
              places.dim(), "-dimensional ", places.scalar_type(), " tensor");
  if (places.dim() == 0) {
    return at::tensor_split(self, places.item<int64_t>(), dim);
  }
  const Tensor host = places.cpu().contiguous();
  return at::tensor_split(self, c10::IntArrayRef(host.const_data_ptr<int64_t>(), host.numel()),
                          dim);
}

c10::Scalar local_scalar_dense(const Tensor& self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(),
              " elements cannot be converted to Scalar");
  RunReason reason("aten::_local_scalar_dense (item(), bool(), int() or float() of a tensor)");
  static metrics::Counter& reads = metrics::counter("aten::_local_scalar_dense");
  reads.add();
  at::AutoDispatchBelowADInplaceOrView guard;
  c10::Scalar number;
  read_on_host(self, [&](const Tensor& window) { number = at::_local_scalar_dense(window); });
  return number;
}

c10::OperatorHandle copy_handle() {
  static const c10::OperatorHandle handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  return handle;
}

// Whole storages of one kind: the destination takes the source's value, and nothing is copied until
// one of them is written again.
bool share_value(const Tensor& self, const Tensor& source) {
  auto covers = [](const Tensor& tensor) {
    return tensor.storage_offset() == 0 && tensor.nbytes() == tensor.storage().nbytes() &&
           tensor.is_non_overlapping_and_dense() && !tensor.is_conj() && !tensor.is_neg();
  };
  if (self.scalar_type() != source.scalar_type() || self.sizes() != source.sizes() ||
      self.strides() != source.strides() || !covers(self) || !covers(source)) {
    return false;
  }
  TraceLock lock;
  Value value = value_of(*source.unsafeGetTensorImpl());
  assign_value(*self.unsafeGetTensorImpl(), std::move(value));
  return true;
}

void record_copy(const Tensor& self, const Tensor& source) {
  if (share_value(self, source)) {
    return;
  }
  static OpInfo& info = op_info(copy_handle());
  c10::IValue arguments[] = {self, source, false};
  Returns fresh;
  record_op(info, arguments, fresh);
}

// Host memory to the device: in eager mode done when this returns.
void upload_into(const Tensor& self, const Tensor& source) {
  switch (eager::mode()) {
    case eager::Mode::Host:
      copy_on_host_memory(self, source);
      return;
    case eager::Mode::Programs:
      copy_from_cpu(self, source);
      run_eagerly({state_of(self)});
      return;
    case eager::Mode::Off:
      copy_from_cpu(self, source);
  }
}

Tensor to_device(const Tensor& source, int device) {
  const HeldData data = materialize_data(source);
  pjrt::BufferPtr moved = data->buffer()->copy_to_device(device);
  if (pjrt::client().host_memory()) {
    moved->await_ready();  // the next operation may change the source in place
  }
  Tensor copy = make_tensor(make_storage(source.storage().nbytes(), device), source.scalar_type(),
                            source.sizes(), source.strides(), source.storage_offset());
  set_leaf(copy, c10::make_intrusive<DeviceData>(std::move(moved)));
  copy._set_conj(source.is_conj());
  copy._set_neg(source.is_neg());
  return copy;
}

void check_no_overlap(const Tensor& self) {
  for (int64_t i = 0; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) <= 1 || self.stride(i) != 0 || self.numel() == 0,
                "unsupported operation: more than one element of the written-to tensor refers to "
                "a single memory location. Please clone() the tensor before performing the "
                "operation.");
  }
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  if (self.is_same(source)) {
    return self;
  }
  if (is_xla(self) && (self.is_conj() || self.is_neg())) {
    // Both bits are their own inverse: what they make of the source is what the memory must hold.
    at::AutoDispatchBelowADInplaceOrView guard;
    Tensor value = source.to(self.scalar_type());
    value = self.is_conj() ? value.conj() : value;
    Tensor memory = without_lazy_bits(self);
    copy_(memory, self.is_neg() ? at::_neg_view(value) : value, non_blocking);
    return self;
  }
  if (!is_xla(self)) {
    RunReason reason("aten::copy_ to the CPU (cpu(), numpy(), tolist() or print)");
    at::AutoDispatchBelowADInplaceOrView guard;
    read_on_host(source, [&](const Tensor& window) { self.copy_(window); });
    return self;
  }
  check_no_overlap(self);
  if (!is_xla(source)) {
    TORCH_CHECK(source.device().is_cpu(), "cannot copy from ", source.device(), " to xla");
    source.expand(self.sizes());  // raises PyTorch's error when it does not fit
    upload_into(self, source);
  } else if (source.device() != self.device()) {
    record_copy(self, to_device(source, self.device().index()));
  } else {
    record_copy(self, source);
  }
  return self;
}

// PyTorch makes new tensors like others contiguous on this device; elsewhere they keep the order of
// dimensions.
bool keeps_order(const Tensor& like, std::optional<c10::Layout> layout, c10::Device device,
                 std::optional<c10::MemoryFormat> format) {
  return device.type() == c10::DeviceType::XLA && like.layout() == c10::kStrided &&
         layout.value_or(c10::kStrided) == c10::kStrided &&
         format.value_or(c10::MemoryFormat::Preserve) == c10::MemoryFormat::Preserve;
}

Tensor empty_in_order(const Tensor& like, std::optional<at::ScalarType> dtype,
                      std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  const std::vector<int64_t> strides = like.is_non_overlapping_and_dense()
                                           ? like.strides().vec()
                                           : at::infer_dense_strides(like.sizes(), like.strides());
  return empty_strided(like.sizes(), strides, dtype.value_or(like.scalar_type()), c10::kStrided,
                       device.value_or(like.device()), pin_memory);
}

Tensor empty_like(const Tensor& self, std::optional<at::ScalarType> dtype,
                  std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                  std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  return keeps_order(self, layout, device.value_or(self.device()), format)
             ? empty_in_order(self, dtype, device, pin_memory)
             : at::native::empty_like(self, dtype, layout, device, pin_memory, format);
}

Tensor to_copy(const Tensor& self, std::optional<at::ScalarType> dtype,
               std::optional<c10::Layout> layout, std::optional<c10::Device> device,
               std::optional<bool> pin_memory, bool non_blocking,
               std::optional<c10::MemoryFormat> format) {
  if (!keeps_order(self, layout, device.value_or(self.device()), format)) {
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
  }
  Tensor copy = empty_in_order(self, dtype, device, pin_memory).copy_(self, non_blocking);
  if (is_xla(self)) {
    mark_copy(copy, self);
  }
  return copy;
}

// Recorded as others are.
void clone(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor source = torch::jit::peek(*stack, 0, 2).toTensor();
  record_boxed(op_info(op), stack);
  mark_copy(stack->back().toTensor(), source);
}

Tensor copy_from(const Tensor& self, const Tensor& destination, bool non_blocking) {
  Tensor target = destination;
  copy_(target, self, non_blocking);
  return target;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& destination) {
  destination.resize_(self.sizes());
  return copy_from(self, destination, false);
}

// What these make shares memory but is no view, for PyTorch promises not to use the original any
// more. A trace must not take it for a tensor from outside, so there it is one of the trace's own.
Tensor own_in_trace(const Tensor& self) {
  TraceScope* scope = current_scope();
  if (scope == nullptr || state_of(self)->scope.get() == scope) {
    return self;
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return at::clone(self);
}

Tensor unsafe_view(const Tensor& self, c10::IntArrayRef size) {
  return at::native::view(own_in_trace(self), size);
}

std::vector<Tensor> unsafe_split_with_sizes(const Tensor& self, c10::IntArrayRef sizes,
                                            int64_t dim) {
  return at::native::unsafe_split_with_sizes(own_in_trace(self), sizes, dim);
}

std::vector<Tensor> unsafe_split(const Tensor& self, int64_t size, int64_t dim) {
  return at::native::unsafe_split(own_in_trace(self), size, dim);
}

// Of singular matrices and the like: a compiled or exported function does not look at values.
void check_linalg(const Tensor& info, std::string_view api_name, bool is_matrix) {
  if (!is_traced_or_exported()) {
    at::native::_linalg_check_errors(info, api_name, is_matrix);
  }
}

bool is_plain(const Tensor& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  return (tensor.is_cpu() || is_xla(tensor)) && tensor.layout() == c10::kStrided &&
         keys.has(c10::DispatchKey::Dense) && !keys.has(c10::DispatchKey::Functionalize) &&
         !keys.has_any(c10::python_ks);
}

// Whether `a.data = b` may be: between the host and the device, too, as for CUDA's tensors.
bool may_take_the_data_of(const Tensor& self, const Tensor& from) {
  return (is_plain(self) && is_plain(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  m.impl("_has_compatible_shallow_copy_type", &may_take_the_data_of);
  m.impl("tensor_split.tensor_indices_or_sections", &tensor_split);
}

TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("_to_copy", &to_copy); }

}  // namespace

void register_device_kernels(torch::Library& m) {
  m.impl("_has_compatible_shallow_copy_type", &may_take_the_data_of);
  m.impl("_linalg_check_errors", &check_linalg);
  m.impl("empty.memory_format", &empty_memory_format);
  m.impl("empty_strided", &empty_strided);
  m.impl("new_empty_strided", &new_empty_strided);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_source_storage);
  m.impl("set_.source_Storage", &set_whole_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_nothing);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("copy_", &copy_);
  m.impl("_to_copy", &to_copy);
  m.impl("clone", torch::CppFunction::makeFromBoxedFunction<&clone>());
  m.impl("empty_like", &empty_like);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("is_set_to", &at::native::is_set_to);
  m.impl("as_strided_", &as_strided_);
  m.impl("view", &at::native::view);
  m.impl("_unsafe_view", &unsafe_view);
  m.impl("unsafe_split.Tensor", &unsafe_split);
  m.impl("unsafe_split_with_sizes", &unsafe_split_with_sizes);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("tensor_split.tensor_indices_or_sections", &tensor_split);
}

}  // namespace torch_xla
