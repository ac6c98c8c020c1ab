#include "record/unboxed_kernel.h"

#include <ATen/Operators.h>

namespace torch_xla::unboxed {

namespace aten = at::_ops;

Kernels layers() {
  return kernels_of<
      aten::mm, aten::bmm, aten::addmm, aten::baddbmm, aten::mv, aten::dot, aten::addmv,
      aten::convolution_backward, aten::_softmax, aten::_safe_softmax, aten::_softmax_backward_data,
      aten::_log_softmax, aten::_log_softmax_backward_data, aten::log_sigmoid_forward,
      aten::nll_loss_forward, aten::nll_loss_backward, aten::mse_loss, aten::mse_loss_backward,
      aten::smooth_l1_loss, aten::smooth_l1_loss_backward, aten::huber_loss,
      aten::binary_cross_entropy, aten::binary_cross_entropy_with_logits, aten::native_layer_norm,
      aten::native_layer_norm_backward, aten::native_group_norm, aten::native_group_norm_backward,
      aten::_fused_rms_norm, aten::_fused_rms_norm_backward, aten::_native_batch_norm_legit,
      aten::_native_batch_norm_legit_no_training, aten::native_batch_norm_backward, aten::embedding,
      aten::embedding_dense_backward, aten::max_pool2d_with_indices,
      aten::max_pool2d_with_indices_backward, aten::avg_pool2d, aten::avg_pool2d_backward,
      aten::_adaptive_avg_pool2d, aten::_adaptive_avg_pool2d_backward, aten::upsample_nearest2d,
      aten::upsample_nearest2d_backward, aten::upsample_bilinear2d,
      aten::upsample_bilinear2d_backward>();
}

}  // namespace torch_xla::unboxed
