// Sparse COO tensors. What training with sparse gradients repeats (to dense, added to dense,
// masked, multiplied) is recorded like other operators; everything else runs PyTorch's CPU kernel
// on copies.
#include "record/sparse.h"

#include "execution/sync.h"
#include "metrics/metrics.h"
#include "record/call.h"
#include "record/meta.h"
#include "record/recorder.h"
#include "record/registration.h"
#include "trace/region.h"

#include <ATen/ATen.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_embedding_bag_backward_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_to_sparse_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/resize_as_sparse_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/zero_native.h>
#include <torch/library.h>

#include <map>

namespace torch_xla {

namespace {

using at::Tensor;

Tensor sparse_like(const Tensor& indices, const Tensor& values, const Tensor& like) {
  return at::_sparse_coo_tensor_unsafe(indices, values, like.sizes())
      ._coalesced_(like.is_coalesced());
}

Tensor to_host(const Tensor& tensor) {
  if (!is_xla(tensor)) {
    return tensor;
  }
  if (is_compressed(tensor)) {
    return with_parts(tensor, to_cpu);
  }
  return tensor.is_sparse()
             ? sparse_like(to_cpu(tensor._indices()), to_cpu(tensor._values()), tensor)
             : to_cpu(tensor);
}

Tensor to_device(const Tensor& tensor, int device) {
  auto send = [device](const Tensor& part) { return upload(part, device); };
  if (is_compressed(tensor)) {
    return with_parts(tensor, send);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided || tensor.is_sparse(),
                              "the xla device has no tensors of layout ", tensor.layout(),
                              ": call this operator on the CPU");
  return tensor.is_sparse() ? sparse_like(send(tensor._indices()), send(tensor._values()), tensor)
                            : send(tensor);
}

void write_back(const Tensor& target, const Tensor& computed, int device) {
  if (is_compressed(target)) {
    replace_parts(target, to_device(computed, device));
    return;
  }
  if (target.is_sparse()) {
    target.copy_(to_device(computed, device));
    return;
  }
  if (target.sizes() != computed.sizes()) {
    target.resize_(computed.sizes());
  }
  copy_from_cpu(target, computed);
}

}  // namespace

void run_on_copies(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpInfo& info = op_info(op);
  const size_t count = info.scalar_arguments.size();
  const IValues arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const int device = device_of_call(arguments);
  metrics::counter("aten::" + op.schema().name().substr(op.schema().name().find("::") + 2)).add();
  RunReason reason(info.name.c_str());
  at::AutoDispatchBelowADInplaceOrView guard;
  std::map<const c10::TensorImpl*, Tensor> copies;  // what is given twice is one tensor there, too
  const bool learns = at::GradMode::is_enabled() && !c10::InferenceMode::is_enabled();
  auto copy = [&copies, learns](const Tensor& tensor) {
    auto [place, is_new] = copies.try_emplace(tensor.unsafeGetTensorImpl());
    if (is_new) {
      place->second = to_host(tensor);
      if (learns && is_xla(tensor) && tensor.requires_grad()) {
        place->second.set_requires_grad(true);  // kernels ask whether there will be a gradient
      }
    }
    return place->second;
  };
  torch::jit::Stack host;
  for (const c10::IValue& argument : arguments) {
    host.push_back(map_tensors(argument, copy, c10::Device(c10::kCPU)));
  }
  const IValues host_arguments = host;
  op.callBoxed(&host);
  for (size_t argument : info.mutated) {
    const std::vector<Tensor> targets = flatten_tensors({arguments[argument]});
    const std::vector<Tensor> values = flatten_tensors({host_arguments[argument]});
    for (size_t i = 0; i < targets.size(); ++i) {
      if (!is_xla(targets[i])) {
        continue;  // the kernel wrote it itself
      }
      write_back(targets[i], values[i], device);
    }
  }
  auto send = [device](const Tensor& tensor) { return to_device(tensor, device); };
  torch::jit::drop(*stack, count);
  for (size_t i = 0; i < host.size(); ++i) {
    const int alias = info.return_alias[i];
    stack->push_back(alias >= 0 ? arguments[alias] : map_tensors(host[i], send, device_of(device)));
  }
}

void run_on_copies_where_cpu_has_kernels(torch::Library& m, c10::DispatchKey cpu,
                                         c10::DispatchKey device) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (name.name.starts_with("aten::") && op && op->hasKernelForDispatchKey(cpu) &&
        !op->hasKernelForDispatchKey(device) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      m.impl(c10::toString(name).c_str(),
             torch::CppFunction::makeFromBoxedFunction<&run_on_copies>());
    }
  }
}

namespace {

// Where the values lie: an index for each sparse dimension.
c10::List<std::optional<Tensor>> places(const Tensor& sparse) {
  c10::List<std::optional<Tensor>> places;
  for (const Tensor& index : sparse._indices().unbind(0)) {
    places.push_back(index);
  }
  return places;
}

Tensor& add_to(Tensor& dense, const Tensor& sparse, const c10::Scalar& alpha) {
  const Tensor values = sparse._values().mul(alpha).to(dense.scalar_type());
  if (sparse.sparse_dim() == 0) {  // all values are at the one place there is
    return dense.add_(values.sum(0, /*keepdim=*/false, dense.scalar_type()));
  }
  return dense.index_put_(places(sparse), values, /*accumulate=*/true);
}

Tensor to_dense(const Tensor& self, std::optional<at::ScalarType> dtype,
                std::optional<bool> /*masked_grad*/) {
  Tensor dense =
      at::zeros(self.sizes(), self._values().options().dtype(dtype.value_or(self.scalar_type())));
  return add_to(dense, self, 1);
}

// A sum whose dense part takes the sparse one: same dtypes, a place for every value.
bool adds_to_dense(const Tensor& self, const Tensor& other) {
  return !self.is_sparse() && other.is_sparse() && self.sizes() == other.sizes() &&
         other.sparse_dim() > 0 && at::result_type(self, other) == self.scalar_type();
}

template <bool kInPlace>
void add(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor self = torch::jit::peek(*stack, 0, 3).toTensor();
  const Tensor other = torch::jit::peek(*stack, 1, 3).toTensor();
  if (!adds_to_dense(self, other)) {
    run_on_copies(op, stack);
    return;
  }
  const c10::Scalar alpha = torch::jit::peek(*stack, 2, 3).toScalar();
  at::AutoDispatchBelowADInplaceOrView guard;
  torch::jit::drop(*stack, 3);
  Tensor sum = kInPlace ? self : self.clone();
  stack->emplace_back(add_to(sum, other, alpha));
}

// The values of a dense tensor at the mask's places; a sparse one's have to be looked for.
void sparse_mask(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor self = torch::jit::peek(*stack, 0, 2).toTensor();
  const Tensor mask = torch::jit::peek(*stack, 1, 2).toTensor();
  if (self.layout() != c10::kStrided || !mask.is_sparse() || self.sizes() != mask.sizes()) {
    run_on_copies(op, stack);
    return;
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  torch::jit::drop(*stack, 2);
  const Tensor values = mask.sparse_dim() > 0
                            ? at::index(self, places(mask))
                            : self.unsqueeze(0).expand(mask._values().sizes()).clone();
  stack->emplace_back(sparse_like(mask._indices().clone(), values, mask));
}

Tensor product(const Tensor& sparse, const Tensor& dense) {
  const Tensor indices = sparse._indices();
  const Tensor terms = sparse._values().unsqueeze(1) * dense.index_select(0, indices[1]);
  return at::zeros({sparse.size(0), dense.size(1)}, dense.options())
      .index_add_(0, indices[0], terms);
}

// The sparse matrix first, and nothing sparse but it.
bool multiplies_dense(const Tensor& sparse, const Tensor& dense) {
  return sparse.is_sparse() && !dense.is_sparse() && sparse.sparse_dim() == 2 &&
         sparse.dense_dim() == 0 && dense.dim() == 2 && sparse.size(1) == dense.size(0) &&
         sparse.scalar_type() == dense.scalar_type();
}

void mm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor self = torch::jit::peek(*stack, 0, 2).toTensor();
  const Tensor other = torch::jit::peek(*stack, 1, 2).toTensor();
  if (!multiplies_dense(self, other)) {
    run_on_copies(op, stack);
    return;
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  torch::jit::drop(*stack, 2);
  stack->emplace_back(product(self, other));
}

void addmm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor self = torch::jit::peek(*stack, 0, 5).toTensor();
  const Tensor first = torch::jit::peek(*stack, 1, 5).toTensor();
  const Tensor second = torch::jit::peek(*stack, 2, 5).toTensor();
  if (self.is_sparse() || !multiplies_dense(first, second)) {
    run_on_copies(op, stack);
    return;
  }
  const c10::Scalar beta = torch::jit::peek(*stack, 3, 5).toScalar();
  const c10::Scalar alpha = torch::jit::peek(*stack, 4, 5).toScalar();
  at::AutoDispatchBelowADInplaceOrView guard;
  torch::jit::drop(*stack, 5);
  const Tensor scaled = product(first, second).mul(alpha);
  const bool ignored = beta.equal(0);  // as in PyTorch, even where it is NaN
  stack->emplace_back(ignored ? scaled : self.mul(beta).add(scaled));
}

// With `sparse` it is composed of operators of the device.
void embedding_bag_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr size_t kArguments = 12, kSparse = 9;
  auto argument = [&](size_t i) { return torch::jit::peek(*stack, i, kArguments); };
  if (!argument(kSparse).toBool()) {
    record_fallback(op, stack);
    return;
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  Tensor gradient = at::native::_embedding_bag_backward_symint(
      argument(0).toTensor(), argument(1).toTensor(), argument(2).toTensor(),
      argument(3).toTensor(), argument(4).toTensor(), argument(5).toTensor(),
      argument(6).toSymInt(), argument(7).toBool(), argument(8).toInt(), true,
      argument(10).toOptional<Tensor>(), argument(11).toInt());
  torch::jit::drop(*stack, kArguments);
  stack->emplace_back(std::move(gradient));
}

TORCH_LIBRARY_IMPL(aten, SparseXLA, m) {
  m.impl("_sparse_coo_tensor_with_dims", &at::native::new_with_dims_sparse);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         &at::native::new_with_dims_and_tensor_sparse_symint);
  m.impl("empty.memory_format", &at::native::empty_sparse);
  m.impl("empty_like", &at::native::empty_like_sparse_coo);
  m.impl("sparse_dim", &at::native::sparse_dim_sparse);
  m.impl("dense_dim", &at::native::dense_dim_sparse);
  m.impl("_dimI", &at::native::sparse_dim_sparse);
  m.impl("_dimV", &at::native::dense_dim_sparse);
  m.impl("_nnz", &at::native::_nnz_sparse);
  m.impl("is_coalesced", &at::native::is_coalesced_sparse);
  m.impl("_coalesced_", &at::native::_coalesced_sparse_);
  m.impl("_indices", &at::native::_indices_sparse);
  m.impl("_values", &at::native::_values_sparse);
  m.impl("indices", &at::native::indices_sparse);
  m.impl("values", &at::native::values_sparse);
  m.impl("clone", &at::native::clone_sparse);
  m.impl("copy_", &at::native::copy_sparse_wrapper_);
  m.impl("copy_sparse_to_sparse_", &at::native::copy_sparse_);
  m.impl("sparse_resize_", &at::native::sparse_resize_);
  m.impl("sparse_resize_and_clear_", &at::native::sparse_resize_and_clear_);
  m.impl("resize_as_sparse_", &at::native::resize_as_sparse_);
  m.impl("zero_", &at::native::zero_sparse_);
  m.impl("_to_dense", &to_dense);
  m.impl("sparse_mask", torch::CppFunction::makeFromBoxedFunction<&sparse_mask>());
  m.impl("add.Tensor", torch::CppFunction::makeFromBoxedFunction<&add<false>>());
  m.impl("add_.Tensor", torch::CppFunction::makeFromBoxedFunction<&add<true>>());
  m.impl("mm", torch::CppFunction::makeFromBoxedFunction<&mm>());
  m.impl("addmm", torch::CppFunction::makeFromBoxedFunction<&addmm>());
  run_on_copies_where_cpu_has_kernels(m, c10::DispatchKey::SparseCPU, c10::DispatchKey::SparseXLA);
}

using ToSparse = Tensor(const Tensor&, std::optional<c10::Layout>, at::OptionalIntArrayRef,
                        std::optional<int64_t>);
using ToSparseOf = Tensor(const Tensor&, int64_t);

TORCH_LIBRARY_IMPL(_, SparseXLA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_copies>());
}

}  // namespace

void register_sparse_tensors(torch::Library& m) {
  m.impl("_to_sparse", static_cast<ToSparse*>(&at::native::dense_to_sparse));
  m.impl("_to_sparse.sparse_dim", static_cast<ToSparseOf*>(&at::native::dense_to_sparse));
  m.impl("_embedding_bag_backward",
         torch::CppFunction::makeFromBoxedFunction<&embedding_bag_backward>());
}

}  // namespace torch_xla
