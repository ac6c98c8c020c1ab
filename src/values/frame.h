// The type of the flat or shaped value that fills a storage. Pure functions.
#pragma once

#include "ir/node.h"

#include <ATen/core/Tensor.h>

namespace torch_xla {

// What a storage holds that grew, perhaps by half a complex number: flat, of its former dtype, of
// the one that is written, or of bytes.
TensorType resized_frame(DType former, DType written, int64_t nbytes);

// Of a storage of so many bytes as the tensor that covers it sees it; flat if it does not.
TensorType frame_of(const at::Tensor& tensor, size_t storage_nbytes);

}  // namespace torch_xla
