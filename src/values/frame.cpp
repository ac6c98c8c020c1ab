#include "values/frame.h"

#include "values/internal_ops.h"

namespace torch_xla {

TensorType resized_frame(DType former, DType written, int64_t nbytes) {
  for (DType dtype : {former, written}) {
    const auto size = static_cast<int64_t>(c10::elementSize(dtype));
    if (nbytes % size == 0) {
      return {dtype, {nbytes / size}};
    }
  }
  return {DType::Byte, {nbytes}};
}

TensorType frame_of(const at::Tensor& tensor, size_t storage_nbytes) {
  const bool covers = tensor.storage_offset() == 0 && tensor.nbytes() == storage_nbytes;
  if (covers && tensor.is_contiguous()) {
    return {tensor.scalar_type(), Dims(tensor.sizes().begin(), tensor.sizes().end())};
  }
  if (covers && is_dense_permutation(tensor.sizes(), tensor.strides())) {
    return make_output_spec(tensor.scalar_type(), tensor.sizes(), tensor.strides()).frame;
  }
  return resized_frame(tensor.scalar_type(), tensor.scalar_type(),
                       static_cast<int64_t>(storage_nbytes));
}

}  // namespace torch_xla
