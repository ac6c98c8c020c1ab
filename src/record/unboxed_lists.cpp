#include "record/unboxed_kernel.h"

#include <ATen/Operators.h>

namespace torch_xla::unboxed {

namespace aten = at::_ops;

// Optimizers' steps.
Kernels of_lists() {
  return kernels_of<
      aten::_foreach_add_Scalar, aten::_foreach_add__Scalar, aten::_foreach_add_List,
      aten::_foreach_add__List, aten::_foreach_sub_List, aten::_foreach_sub__List,
      aten::_foreach_mul_Scalar, aten::_foreach_mul__Scalar, aten::_foreach_mul_List,
      aten::_foreach_mul__List, aten::_foreach_mul__Tensor, aten::_foreach_mul__ScalarList,
      aten::_foreach_div_List, aten::_foreach_div__List, aten::_foreach_div__Scalar,
      aten::_foreach_div__ScalarList, aten::_foreach_lerp__Scalar, aten::_foreach_addcmul__Scalar,
      aten::_foreach_addcdiv__Scalar, aten::_foreach_addcdiv__ScalarList, aten::_foreach_sqrt,
      aten::_foreach_sqrt_, aten::_foreach_neg, aten::_foreach_neg_, aten::_foreach_maximum__List,
      aten::_foreach_zero_, aten::_foreach_norm_Scalar, aten::_fused_adam_, aten::_fused_adamw_,
      aten::_fused_sgd_>();
}

}  // namespace torch_xla::unboxed
