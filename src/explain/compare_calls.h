// How one call of an operator differs from the same call in the graph before.
#pragma once

#include "explain/compare.h"

#include <optional>

namespace torch_xla::explain {

// Operand `index` read through another window.
std::optional<Explanation> changed_window(const Operation& before, const Operation& now,
                                          size_t index);
// The number in position `slot` has another value; `promoted`: it is an input of the program now.
Explanation changed_number(const Operation& now, size_t slot, const Number& from, const Number& to,
                           bool promoted);
// Anything else that the signatures of the two calls disagree on.
std::optional<Explanation> changed_signature(const Operation& before, const Operation& now);

}  // namespace torch_xla::explain
