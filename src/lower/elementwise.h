// Parts of the element-wise family, registered together by register_elementwise.
#pragma once

#include "lower/table.h"

namespace torch_xla {

void register_arithmetic(LowerTable& table);  // elementwise.cpp
void register_logic(LowerTable& table);       // elementwise_logic.cpp
void register_power(LowerTable& table);       // power.cpp

}  // namespace torch_xla
