// Python's tensors as objects.
#include "bindings.h"

#include <torch/csrc/autograd/python_variable.h>

#include <utility>

namespace torch_xla {

namespace {

// Exchanges the tensors of two Python objects. Unlike PyTorch's own, whatever refers to the tensors
// without keeping them alive, as a profile of their memory does, may go on to.
void swap_tensor_impls(pybind11::handle first, pybind11::handle second) {
  TORCH_CHECK(THPVariable_Check(first.ptr()) && THPVariable_Check(second.ptr()),
              "two tensors are exchanged, not other objects");
  auto* one = reinterpret_cast<THPVariable*>(first.ptr());
  auto* other = reinterpret_cast<THPVariable*>(second.ptr());
  // While a tensor has a second owner it holds a reference to its Python object, here to either.
  const at::Tensor tensor_of_one = one->cdata;
  const at::Tensor tensor_of_other = other->cdata;
  std::swap(one->cdata, other->cdata);
  tensor_of_other.unsafeGetTensorImpl()->pyobj_slot()->store_pyobj(first.ptr());
  tensor_of_one.unsafeGetTensorImpl()->pyobj_slot()->store_pyobj(second.ptr());
}

}  // namespace

void bind_tensors(pybind11::module& m) { m.def("swap_tensor_impls", &swap_tensor_impls); }

}  // namespace torch_xla
