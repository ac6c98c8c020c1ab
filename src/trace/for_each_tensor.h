// Walks over the tensors of an operator's argument or result.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace torch_xla {

// Calls `visit` with each defined tensor, those of lists included, as the argument refers to it:
// for as long as the argument is there.
template <typename Visit>
void for_each_tensor(const at::Tensor& given, const Visit& visit) {
  if (given.defined()) {
    visit(given);
  }
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    for_each_tensor(value.toTensor(), visit);
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      for_each_tensor(element, visit);
    }
  }
}

// Of kernels that are called unboxed, whose other parameters have none.
template <typename Given, typename Visit>
void for_each_tensor(const Given&, const Visit&) {}

template <typename Visit>
void for_each_tensor(const std::optional<at::Tensor>& given, const Visit& visit) {
  if (given) {
    for_each_tensor(*given, visit);
  }
}

template <typename Visit>
void for_each_tensor(const at::TensorList& given, const Visit& visit) {
  for (const at::Tensor& tensor : given) {
    for_each_tensor(tensor, visit);
  }
}

template <typename Visit>
void for_each_tensor(const at::ITensorListRef& given, const Visit& visit) {
  for (const at::Tensor& tensor : given) {
    for_each_tensor(tensor, visit);
  }
}

// The list's elements outlive this box of it; what its iterators return would not.
template <typename Visit>
void for_each_tensor(const c10::List<std::optional<at::Tensor>>& given, const Visit& visit) {
  for_each_tensor(c10::IValue(given), visit);
}

}  // namespace torch_xla
