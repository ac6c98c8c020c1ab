// Parts of the element-wise family, registered together by register_elementwise.
#pragma once

#include "lower/table.h"

#include <string_view>

namespace torch_xla {

void register_arithmetic(LowerTable& table);  // elementwise.cpp
void register_logic(LowerTable& table);       // elementwise_logic.cpp

// Functions ("aten::sin") of floating numbers that XLA-CPU has the C library compute, number by
// number, and for which PyTorch has vectors.
bool is_c_library_function(std::string_view op);

}  // namespace torch_xla
