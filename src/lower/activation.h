// Shared by the activation*.cpp files.
#pragma once

#include "lower/expr.h"
#include "lower/table.h"

namespace torch_xla {

void register_loss(LowerTable& table);  // part of register_activation

}  // namespace torch_xla
