#include "record/unboxed_kernel.h"

#include <ATen/Operators.h>

namespace torch_xla::unboxed {

namespace aten = at::_ops;

Kernels along_dimensions() {
  return kernels_of<aten::sum, aten::sum_dim_IntList, aten::mean, aten::mean_dim, aten::amax,
                    aten::amin, aten::argmax, aten::argmin, aten::max, aten::max_dim, aten::min,
                    aten::min_dim, aten::any, aten::any_dim, aten::all, aten::all_dim, aten::cumsum,
                    aten::cumprod, aten::logsumexp, aten::linalg_vector_norm, aten::var_correction,
                    aten::std_correction, aten::topk, aten::sort, aten::cat, aten::clone,
                    aten::stack, aten::index_Tensor, aten::index_select, aten::gather,
                    aten::scatter_src, aten::scatter__src, aten::scatter_value, aten::scatter_add,
                    aten::scatter_add_, aten::scatter_reduce_two, aten::index_add, aten::index_add_,
                    aten::index_copy_, aten::index_put_, aten::_index_put_impl_, aten::tril,
                    aten::triu, aten::repeat, aten::flip, aten::roll, aten::constant_pad_nd>();
}

}  // namespace torch_xla::unboxed
