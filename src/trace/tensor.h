// Tensors of the xla device: plain TensorImpls whose storage's DataPtr carries a StorageState and
// an address that is unique, stable and never dereferenced. Any thread.
#pragma once

#include "host_ops/kernel_call.h"
#include "values/state.h"

#include <ATen/core/Tensor.h>

namespace torch_xla {

bool is_xla(const at::Tensor& tensor);
const StatePtr& state_of(const c10::Storage& storage);
// Null: not one of the device's. A fake tensor says that it is on the device, too.
const StatePtr* find_state(const c10::Storage& storage);
const StatePtr& state_of(const c10::TensorImpl& tensor);
const StatePtr& state_of(const at::Tensor& tensor);
// Where else the tensor's window could begin: in a storage of so many elements (0: nowhere). And
// how it lies there (Window).
struct Leeway {
  int64_t extent = 0;
  Window::Lies lies = Window::Lies::InRows;
};
Leeway leeway_of(const c10::TensorImpl& tensor);
Window window_of(const at::Tensor& tensor);
c10::Device device_of(int index);

// A new storage of `nbytes`, never written or with a leaf.
c10::Storage make_storage(int64_t nbytes, int device, Value value = {});
// Of a value of eager mode, outside of traces: plain memory that nobody else sees.
c10::Storage make_storage_on_host(at::Tensor host, int device);
at::Tensor make_tensor(c10::Storage storage, DType dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, int64_t offset = 0);
// Another storage object that holds the same value.
c10::Storage share_storage(const c10::Storage& storage);
// The same memory as it is, without the tensor's conjugate and negative bits.
at::Tensor without_lazy_bits(const at::Tensor& tensor);
at::Tensor empty_tensor(DType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, int device);

// Refuses, at the user's line, a device that does not exist, and what no device could hold.
void check_device(int device);
void check_allocation(int64_t nbytes, int device);

// Replaces the window of `tensor` by `update`, whose output spec says how it lies in memory.
void write_value(const at::Tensor& tensor, Value update, const OutputSpec& spec)
    REQUIRES(trace_mutex);

// Grows or shrinks the storage behind a tensor; shrunk to nothing it forgets its value.
void resize_storage(const at::Tensor& tensor, int64_t nbytes);

// The lowest-level write: the tensor's whole storage becomes this.
void set_leaf(const at::Tensor& tensor, DeviceDataPtr data);

}  // namespace torch_xla
