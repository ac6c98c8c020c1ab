// Decompositions traced once per kind of call: from then on a call of the operator is one node, and
// the front end's decomposition (Python's) does not run again.
#pragma once

#include "record/decompose.h"

namespace torch_xla {

// Installs the front end's decomposer behind a cache of traces. Once, by the front end.
void set_traced_decomposer(Decomposer decomposer);

}  // namespace torch_xla
