// Indices that are on the host when an operator is called: wrong ones raise there, at the user's
// line.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

namespace torch_xla {

// How an operator counts places in its first argument. Null for those that choose none.
struct PlaceRule;
const PlaceRule* find_place_rule(std::string_view op);

// Throws the operator's own error for indices and masks, as far as they are on the host, that do
// not fit.
void check_host_indices(const PlaceRule& rule, c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_xla
