// Random operators as lower/random.cpp lowers them, on CPU tensors: from the same state the same
// bits, and so the same numbers up to the rounding of logarithms and their like. Any thread.
#pragma once

#include "ir/signature.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_xla {

// The results but for the generator's state, which goes on in place. Throws NotInterpretable for
// an operator that is not here.
std::vector<at::Tensor> draw_as_lowered(const Signature& signature,
                                        const std::vector<at::Tensor>& operands,
                                        c10::ArrayRef<Number> numbers, uint64_t* state);

}  // namespace torch_xla
