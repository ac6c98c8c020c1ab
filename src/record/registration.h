// Lists how operators run on the device. Any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace torch_xla {

// Functional operators of the aten namespace and their tier: "direct", "decomposition", "host".
std::vector<std::pair<std::string, std::string>> operator_tiers();

}  // namespace torch_xla
