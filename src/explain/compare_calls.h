// How one call of an operator differs from the same call in the graph before.
#pragma once

#include "explain/compare.h"

#include <optional>

namespace torch_xla::explain {

// Operand `index` read through another window.
std::optional<Explanation> changed_window(const Operation& before, const Operation& now,
                                          size_t index);
// Anything else that the signatures of the two calls disagree on.
std::optional<Explanation> changed_signature(const Operation& before, const Operation& now);

}  // namespace torch_xla::explain
