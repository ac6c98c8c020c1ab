// StableHLO that others wrote, as text: the types of its function @main, and its functions under
// names of another module. Stateless; any thread.
#pragma once

#include "ir/types.h"

#include <functional>
#include <string>
#include <vector>

namespace torch_xla::stablehlo {

struct FunctionType {
  std::vector<TensorType> parameters;
  std::vector<TensorType> results;
};

// "tensor<2x3xf32>". Throws Error for what the device has no tensors of.
TensorType parse_type(const std::string& text);

// Of the function @main of a module. Throws Error when there is none.
FunctionType main_type(const std::string& module);

// The module's functions and meshes, all private, for another module. `rename` is given the name
// of each, and says what it is called there.
std::string functions_of(const std::string& module,
                         const std::function<std::string(const std::string&)>& rename);

}  // namespace torch_xla::stablehlo
