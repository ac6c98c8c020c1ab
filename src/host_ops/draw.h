// Random operators as lower/random.cpp lowers them, on CPU tensors: from the same state the same
// numbers, bit for bit. Those that need a logarithm or its like, which rounds differently in a
// program, programs on the CPU draw here. Any thread.
#pragma once

#include "ir/signature.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_xla {

bool is_drawn(const Signature& signature);
// The results but for the generator's state, which goes on in place. Throws for an operator that
// is not here, and with `checks` PyTorch's errors for probabilities that are none.
std::vector<at::Tensor> draw_as_lowered(const Signature& signature,
                                        const std::vector<at::Tensor>& operands,
                                        c10::ArrayRef<Number> numbers, uint64_t* state,
                                        bool checks);

}  // namespace torch_xla
