// In words, what differs between two traces or two kinds of call.
#pragma once

#include "pure/entry.h"

namespace torch_xla {

// Empty when both compute the same; else the first operator that differs and where it was recorded.
std::string describe_difference(const PureEntry& known, const PureEntry& fresh);

// Which argument or switch changed, and how.
std::string describe_key_change(const Words& before, const Words& now);

}  // namespace torch_xla
