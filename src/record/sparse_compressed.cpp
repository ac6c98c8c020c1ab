// Sparse tensors with compressed indices: CSR and CSC, and BSR and BSC, their kin with blocks. What
// graph networks repeat (transposed, multiplied, to dense) is recorded, by way of COO; everything
// else runs PyTorch's CPU kernel on copies.
#include "record/sparse.h"

#include "record/meta.h"
#include "record/recorder.h"
#include "record/registration.h"

#include <ATen/ATen.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

namespace torch_xla {

namespace {

using at::Tensor;

c10::DispatchKeySet keys_on_device() {
  constexpr auto kBackend = c10::BackendComponent::XLABit;
  const auto keys = c10::DispatchKeySet(c10::DispatchKey::SparseCsrXLA) |
                    c10::getAutocastRelatedKeySetFromBackend(kBackend);
  return c10::InferenceMode::is_enabled()
             ? keys
             : keys | c10::getAutogradRelatedKeySetFromBackend(kBackend);
}

// PyTorch's, whose constructor knows its own devices only.
class CompressedImpl final : public at::SparseCsrTensorImpl {
 public:
  CompressedImpl(c10::Device device, c10::Layout layout, caffe2::TypeMeta dtype)
      : SparseCsrTensorImpl(c10::DispatchKeySet(c10::DispatchKey::SparseCsrMeta), c10::kMeta,
                            layout, dtype) {
    device_opt_ = device;
    key_set_ = keys_on_device();
  }

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version, bool allow_metadata_change) const override {
    return detached(version, allow_metadata_change);
  }

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&& version, bool allow_metadata_change) const override {
    return detached(version, allow_metadata_change);
  }

 private:
  c10::intrusive_ptr<c10::TensorImpl> detached(const c10::VariableVersion& version,
                                               bool allow_metadata_change) const {
    // Tensor subclasses and modes make the copy themselves, as for PyTorch's own.
    if (c10::impl::TorchDispatchModeTLS::stack_len() > 0 ||
        key_set_.has(c10::DispatchKey::Python)) {
      return SparseCsrTensorImpl::shallow_copy_and_detach(version, allow_metadata_change);
    }
    auto copy = c10::make_intrusive<CompressedImpl>(device(), layout_impl(), dtype());
    TensorImpl::copy_tensor_metadata(this, copy.get(), version, allow_metadata_change);
    copy->crow_indices_ = crow_indices_;
    copy->col_indices_ = col_indices_;
    copy->values_ = values_;
    copy->refresh_numel();
    return copy;
  }
};

at::SparseCsrTensorImpl* parts(const Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

bool by_rows(c10::Layout layout) { return layout == c10::kSparseCsr || layout == c10::kSparseBsr; }

// A matrix of numbers: COO says the same.
bool is_plain_matrix(const Tensor& tensor) {
  return is_compressed(tensor) && tensor.dim() == 2 && parts(tensor)->values().dim() == 1;
}

Tensor as_coo(const Tensor& tensor) {
  if (!is_compressed(tensor)) {
    return tensor;
  }
  // Number i lies in the row after as many as end at or before i.
  const Tensor& plain = parts(tensor)->plain_indices();
  const Tensor ends = parts(tensor)->compressed_indices().slice(0, 1);
  const Tensor compressed = at::searchsorted(ends, at::arange(plain.size(0), ends.options()),
                                             /*out_int32=*/false, /*right=*/true);
  const Tensor indices = by_rows(tensor.layout()) ? at::stack({compressed, plain.to(at::kLong)})
                                                  : at::stack({plain.to(at::kLong), compressed});
  return at::_sparse_coo_tensor_unsafe(indices, parts(tensor)->values(), tensor.sizes());
}

// Recorded where only the first matrix is sparse, and the result dense.
void by_way_of_coo(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const IValues arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const std::vector<Tensor> tensors = flatten_tensors(arguments);
  const size_t place = tensors.size() == 3 ? 1 : 0;  // addmm's first matrix follows what is added
  bool recorded = true;
  for (size_t i = 0; i < tensors.size(); ++i) {
    recorded = recorded &&
               (i == place ? is_plain_matrix(tensors[i]) : tensors[i].layout() == c10::kStrided);
  }
  if (!recorded) {
    run_on_copies(op, stack);
    return;
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  torch::jit::drop(*stack, count);
  for (const c10::IValue& argument : arguments) {
    stack->push_back(argument.isTensor() ? c10::IValue(as_coo(argument.toTensor())) : argument);
  }
  op.callBoxed(stack);
}

Tensor make(const Tensor& compressed, const Tensor& plain, const Tensor& values,
            c10::IntArrayRef sizes, std::optional<at::ScalarType> /*dtype*/,
            std::optional<c10::Layout> layout, std::optional<c10::Device> /*device*/,
            std::optional<bool> /*pin_memory*/) {
  TORCH_CHECK(layout,
              "sparse_compressed_tensor expected a layout, received none: name one of "
              "torch.sparse_csr, sparse_csc, sparse_bsr and sparse_bsc");
  return compressed_tensor(compressed, plain, values, sizes, *layout);
}

// The makers of one layout: PyTorch's own ask for the kernel of its own devices. As these they have
// no gradient.
template <c10::Layout layout>
Tensor make_checked(const Tensor& compressed, const Tensor& plain, const Tensor& values,
                    c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                    std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> device,
                    std::optional<bool> pin_memory) {
  return at::sparse_compressed_tensor(compressed, plain, values, sizes, dtype, layout, device,
                                      pin_memory);
}

template <c10::Layout layout>
Tensor make_sized(const Tensor& compressed, const Tensor& plain, const Tensor& values,
                  std::optional<at::ScalarType> dtype, std::optional<c10::Layout> /*layout*/,
                  std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return at::sparse_compressed_tensor(compressed, plain, values, dtype, layout, device, pin_memory);
}

template <c10::Layout layout>
Tensor make_unchecked(const Tensor& compressed, const Tensor& plain, const Tensor& values,
                      c10::IntArrayRef sizes, std::optional<at::ScalarType> /*dtype*/,
                      std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> /*device*/,
                      std::optional<bool> /*pin_memory*/) {
  return compressed_tensor(compressed, plain, values, sizes, layout);
}

template <c10::Layout layout>
void register_makers(torch::Library& m, const std::string& kind, const std::string& indices) {
  const std::string checked = "sparse_" + kind + "_tensor." + indices + "_value";
  m.impl((checked + "_size").c_str(), &make_checked<layout>);
  m.impl(checked.c_str(), &make_sized<layout>);
  m.impl(("_sparse_" + kind + "_tensor_unsafe").c_str(), &make_unchecked<layout>);
}

void register_all_makers(torch::Library& m) {
  register_makers<c10::kSparseCsr>(m, "csr", "crow_col");
  register_makers<c10::kSparseBsr>(m, "bsr", "crow_col");
  register_makers<c10::kSparseCsc>(m, "csc", "ccol_row");
  register_makers<c10::kSparseBsc>(m, "bsc", "ccol_row");
}

Tensor clone(const Tensor& self, std::optional<at::MemoryFormat> /*format*/) {
  return with_parts(self, [](const Tensor& part) { return part.clone(); });
}

// From the CPU to the device, back, and between dtypes.
Tensor to_copy(const Tensor& self, std::optional<at::ScalarType> dtype,
               std::optional<c10::Layout> layout, std::optional<c10::Device> device,
               std::optional<bool> pin_memory, bool non_blocking,
               std::optional<at::MemoryFormat> format) {
  const c10::Device target = device.value_or(self.device());
  if ((self.is_cpu() && target.is_cpu()) || layout.value_or(self.layout()) != self.layout()) {
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
  }
  Tensor values = at::_to_copy(parts(self)->values(), dtype, std::nullopt, target, pin_memory,
                               non_blocking, std::nullopt);
  return with_parts(self, [&](const Tensor& part) {
    return part.is_same(parts(self)->values()) ? values : part.to(target, non_blocking, true);
  });
}

void transpose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor self = torch::jit::peek(*stack, 0, 3).toTensor();
  const int64_t first = torch::jit::peek(*stack, 1, 3).toInt();
  const int64_t second = torch::jit::peek(*stack, 2, 3).toInt();
  const bool same = at::maybe_wrap_dim(first, self.dim()) == at::maybe_wrap_dim(second, self.dim());
  if (same || !is_plain_matrix(self)) {
    run_on_copies(op, stack);
    return;
  }
  torch::jit::drop(*stack, 3);
  stack->emplace_back(compressed_tensor(
      parts(self)->compressed_indices(), parts(self)->plain_indices(), parts(self)->values(),
      {self.size(1), self.size(0)}, by_rows(self.layout()) ? c10::kSparseCsc : c10::kSparseCsr));
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { register_all_makers(m); }

TORCH_LIBRARY_IMPL(aten, SparseCsrXLA, m) {
  m.impl("_sparse_compressed_tensor_unsafe", &make);
  m.impl("sparse_dim", &at::native::sparse_dim_sparse_csr);
  m.impl("dense_dim", &at::native::dense_dim_sparse_csr);
  m.impl("_nnz", &at::native::_nnz_sparse_csr);
  m.impl("values", &at::native::values_sparse_csr);
  m.impl("crow_indices", &at::native::crow_indices_sparse_csr);
  m.impl("col_indices", &at::native::col_indices_sparse_csr);
  m.impl("ccol_indices", &at::native::ccol_indices_sparse_csr);
  m.impl("row_indices", &at::native::row_indices_sparse_csr);
  m.impl("clone", &clone);
  m.impl("_to_copy", &to_copy);
  m.impl("transpose.int", torch::CppFunction::makeFromBoxedFunction<&transpose>());
  // PyTorch has kernels of these for all devices, which know no compressed tensors of ours.
  for (const char* name : {"empty_like", "zeros_like", "copy_", "select.int"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_copies>());
  }
  for (const char* name : {"_to_dense", "mm", "addmm"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&by_way_of_coo>());
  }
  run_on_copies_where_cpu_has_kernels(m, c10::DispatchKey::SparseCsrCPU,
                                      c10::DispatchKey::SparseCsrXLA);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrCPU, m) { m.impl("_to_copy", &to_copy); }

// Dense tensors made sparse.
TORCH_LIBRARY_IMPL(_, SparseCsrXLA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_copies>());
}

}  // namespace

void register_compressed_tensors(torch::Library& m) {
  register_all_makers(m);
  m.impl("_sparse_compressed_tensor_unsafe", &make);
  for (const char* name : {"_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc",
                           "_validate_sparse_compressed_tensor_args"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_copies>());
  }
}

bool is_compressed(const Tensor& tensor) {
  const c10::Layout layout = tensor.layout();
  return layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr ||
         layout == c10::kSparseBsc;
}

Tensor compressed_tensor(const Tensor& compressed, const Tensor& plain, const Tensor& values,
                         c10::IntArrayRef sizes, c10::Layout layout) {
  Tensor made = at::detail::make_tensor<CompressedImpl>(values.device(), layout, values.dtype());
  parts(made)->set_member_tensors(compressed, plain, values, sizes);
  return made;
}

Tensor with_parts(const Tensor& tensor, const std::function<Tensor(const Tensor&)>& change) {
  const auto* from = parts(tensor);
  const Tensor values = change(from->values());
  return at::_sparse_compressed_tensor_unsafe(change(from->compressed_indices()),
                                              change(from->plain_indices()), values, tensor.sizes(),
                                              values.options().layout(tensor.layout()));
}

void replace_parts(const Tensor& target, const Tensor& source) {
  const auto* from = parts(source);
  parts(target)->set_member_tensors(from->compressed_indices(), from->plain_indices(),
                                    from->values(), source.sizes());
}

}  // namespace torch_xla
