// Operators that compute or move elements, most of which know nothing of the others: functions,
// cumulative sums, pads, sorting. Thread-safe.
#pragma once

#include "host_ops/divide.h"

namespace torch_xla {

// The call as pieces for so many threads; empty if it is none of these, or better not divided.
std::vector<CallPiece> divide_elements(const c10::OperatorHandle& op,
                                       const torch::jit::Stack& arguments, int64_t threads);

}  // namespace torch_xla
