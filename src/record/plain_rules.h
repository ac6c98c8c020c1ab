// What the rules of plain_shapes.h are written in.
#pragma once

#include "record/meta.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>

#include <algorithm>

namespace torch_xla::plain {

using Results = std::optional<IValues>;

inline bool wide(c10::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kDouble; }

inline bool plain_dtype(c10::ScalarType dtype) {
  return wide(dtype) || dtype == at::kHalf || dtype == at::kBFloat16;
}

inline at::Tensor tensor_or_none(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

inline bool is_plain(const at::Tensor& tensor, c10::ScalarType dtype) {
  return !tensor.defined() || (tensor.is_meta() && tensor.scalar_type() == dtype &&
                               tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg());
}

// In order, and of the first one's dtype, which is a floating one.
inline bool plain_floats(c10::ArrayRef<at::Tensor> tensors) {
  const c10::ScalarType dtype = tensors.empty() ? at::kBool : tensors[0].scalar_type();
  return plain_dtype(dtype) &&
         std::all_of(tensors.begin(), tensors.end(),
                     [dtype](const at::Tensor& tensor) { return is_plain(tensor, dtype); });
}

// A gradient as sums make it: one number, seen in all places. It leaves results in the others'
// order.
inline bool is_expanded_number(const at::Tensor& tensor) {
  return std::all_of(tensor.strides().begin(), tensor.strides().end(),
                     [](int64_t stride) { return stride == 0; });
}

inline bool is_plain_gradient(const at::Tensor& tensor, c10::ScalarType dtype) {
  return is_plain(tensor, dtype) ||
         (tensor.is_meta() && tensor.scalar_type() == dtype && !tensor.is_neg() &&
          tensor.numel() > 0 && is_expanded_number(tensor));
}

inline at::Tensor result(c10::IntArrayRef sizes, const at::Tensor& dtype_of) {
  return at::detail::empty_meta(sizes, dtype_of.scalar_type());
}

inline at::Tensor result_in_format_of(const at::Tensor& tensor) {
  return at::detail::empty_meta(tensor.sizes(), tensor.scalar_type(),
                                tensor.suggest_memory_format());
}

// Sums along the way have 32 bits at least.
inline at::Tensor wide_result(c10::IntArrayRef sizes, const at::Tensor& dtype_of) {
  return at::detail::empty_meta(sizes, at::toOpMathType(dtype_of.scalar_type()));
}

// Strides of dimensions of one element are kept, too, unless the tensor has gaps.
inline at::Tensor result_in_order_of(const at::Tensor& tensor) {
  const std::vector<int64_t> strides =
      tensor.is_non_overlapping_and_dense()
          ? tensor.strides().vec()
          : at::infer_dense_strides(tensor.sizes(), tensor.strides());
  return at::detail::empty_strided_meta(tensor.sizes(), strides, tensor.scalar_type());
}

inline bool has_sizes(const c10::IValue& value, c10::IntArrayRef sizes) {
  const at::Tensor tensor = tensor_or_none(value);
  return !tensor.defined() || tensor.sizes() == sizes;
}

// Like each of `tensors` where the mask, the operator's last argument, wants it.
inline Results wanted(const IValues& arguments, const std::array<at::Tensor, 3>& tensors) {
  const c10::List<bool> mask = arguments.back().toBoolList();
  IValues results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (mask[i] && !tensors[i].defined()) {
      return std::nullopt;
    }
    results.emplace_back(mask[i] ? result(tensors[i].sizes(), tensors[i]) : at::Tensor());
  }
  return results;
}

// Which dimensions these are; nullopt if one is none, or comes twice.
inline std::optional<std::vector<bool>> dims_of(const at::Tensor& tensor,
                                                const std::vector<int64_t>& dims) {
  std::vector<bool> found(tensor.dim());
  for (int64_t dim : dims) {
    dim += dim < 0 ? tensor.dim() : 0;
    if (dim < 0 || dim >= tensor.dim() || found[dim]) {
      return std::nullopt;
    }
    found[dim] = true;
  }
  return found;
}

}  // namespace torch_xla::plain
