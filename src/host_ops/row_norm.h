// Layer normalisation and RMS normalisation and their gradients, where the numbers of a row lie one
// after another: XLA-CPU adds one number after another, on one thread. Thread-safe.
#pragma once

#include "host_ops/divide.h"

namespace torch_xla {

// The call as pieces for so many threads: rows, and columns of the gradients of weight and bias.
// Empty: it is none of these operators, or better not taken (few numbers, other types).
std::vector<CallPiece> divide_row_norm(const c10::OperatorHandle& op,
                                       const torch::jit::Stack& arguments, int64_t threads);

}  // namespace torch_xla
