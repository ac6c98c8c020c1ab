// Walks over the tensors of an operator's argument or result.
#pragma once

#include <ATen/core/ivalue.h>

namespace torch_xla {

// Calls `visit` with each defined tensor, those of lists included.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      for_each_tensor(element, visit);
    }
  }
}

}  // namespace torch_xla
