// The shardings that the compiler chose for the results of a partitioned program. Stateless.
#pragma once

#include "sharding/sharding.h"

#include <string_view>
#include <vector>

namespace torch_xla::pjrt {

// `module`: the serialised HloModuleProto of a partitioned program with `count` results. Results
// of which it says nothing are replicated. Throws if it is damaged.
std::vector<ShardingPtr> result_shardings(std::string_view module, size_t count);

}  // namespace torch_xla::pjrt
