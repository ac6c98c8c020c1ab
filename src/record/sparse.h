// Sparse tensors of the device: COO (sparse.cpp), and those with compressed indices, CSR and its
// kin (sparse_compressed.cpp). Both are PyTorch's own over index and value tensors of the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <functional>

namespace torch_xla {

// Whether CSR, CSC, BSR or BSC.
bool is_compressed(const at::Tensor& tensor);

// A tensor of a compressed layout over three tensors of the device.
at::Tensor compressed_tensor(const at::Tensor& compressed, const at::Tensor& plain,
                             const at::Tensor& values, c10::IntArrayRef sizes, c10::Layout layout);

// The same with each of its tensors changed, on the CPU or the device.
at::Tensor with_parts(const at::Tensor& tensor,
                      const std::function<at::Tensor(const at::Tensor&)>& change);

// Makes `target` hold what `source`, of the same device and layout, holds.
void replace_parts(const at::Tensor& target, const at::Tensor& source);

// Runs PyTorch's CPU kernel on copies, and is counted as aten::<op>.
void run_on_copies(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Has that done for what the CPU has a kernel of its own for with key `cpu`, unless `device`
// already has one: a fallback would come after PyTorch's kernels for dense tensors of any device.
void run_on_copies_where_cpu_has_kernels(torch::Library& m, c10::DispatchKey cpu,
                                         c10::DispatchKey device);

}  // namespace torch_xla
