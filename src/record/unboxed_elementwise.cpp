#include "record/unboxed_kernel.h"

#include <ATen/Operators.h>

namespace torch_xla::unboxed {

namespace aten = at::_ops;

Kernels elementwise() {
  return kernels_of<
      aten::add_Tensor, aten::add__Tensor, aten::sub_Tensor, aten::sub__Tensor, aten::mul_Tensor,
      aten::mul__Tensor, aten::div_Tensor, aten::div__Tensor, aten::div_Tensor_mode,
      aten::pow_Tensor_Scalar, aten::pow_Tensor_Tensor, aten::pow_Scalar, aten::remainder_Tensor,
      aten::remainder_Scalar, aten::fmod_Tensor, aten::atan2, aten::rsub_Scalar, aten::maximum,
      aten::minimum, aten::neg, aten::neg_, aten::abs, aten::abs_, aten::sgn, aten::sign,
      aten::floor, aten::ceil, aten::round, aten::exp, aten::exp_, aten::expm1, aten::log,
      aten::log1p, aten::log2, aten::sqrt, aten::sqrt_, aten::rsqrt, aten::reciprocal, aten::erf,
      aten::sigmoid, aten::sigmoid_, aten::sigmoid_backward, aten::tanh, aten::tanh_,
      aten::tanh_backward, aten::relu, aten::relu_, aten::gelu, aten::gelu_backward, aten::silu,
      aten::silu_, aten::silu_backward, aten::threshold_backward, aten::leaky_relu,
      aten::leaky_relu_backward, aten::hardtanh, aten::hardtanh_backward, aten::hardswish,
      aten::elu, aten::elu_backward, aten::softplus, aten::softplus_backward, aten::glu, aten::sin,
      aten::cos, aten::tan, aten::atan, aten::clamp, aten::clamp_Tensor, aten::clamp_min,
      aten::clamp_min_, aten::clamp_max, aten::eq_Tensor, aten::eq_Scalar, aten::ne_Tensor,
      aten::ne_Scalar, aten::lt_Tensor, aten::lt_Scalar, aten::le_Tensor, aten::le_Scalar,
      aten::gt_Tensor, aten::gt_Scalar, aten::ge_Tensor, aten::ge_Scalar, aten::bitwise_and_Tensor,
      aten::bitwise_or_Tensor, aten::bitwise_xor_Tensor, aten::bitwise_not, aten::logical_not,
      aten::logical_and, aten::logical_or, aten::isnan, aten::where_self, aten::masked_fill_Scalar,
      aten::masked_fill_Tensor, aten::masked_fill__Scalar, aten::masked_fill__Tensor,
      aten::lerp_Scalar, aten::lerp__Scalar, aten::lerp_Tensor, aten::addcmul, aten::addcmul_,
      aten::addcdiv, aten::addcdiv_, aten::fill__Scalar, aten::fill__Tensor, aten::zero_,
      aten::isfinite, aten::zeros, aten::ones, aten::full, aten::arange, aten::arange_start,
      aten::arange_start_step>();
}

}  // namespace torch_xla::unboxed
