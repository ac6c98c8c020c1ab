// Nodes that run computations: a call, `stablehlo.if`, or `stablehlo.while` around one.
#pragma once

#include "lower/context.h"

#include <functional>

namespace torch_xla {

// Calls a computation's function.
using CallComputation = std::function<Vals(const Computation&, const Vals&)>;

// The node's outputs, of the types that its signature says.
Vals lower_control(Builder& b, const Signature& signature, const Vals& operands,
                   const CallComputation& call);

}  // namespace torch_xla
