// Reads that look at what else is pending look at everything once.
#pragma once

#include "values/state.h"

namespace torch_xla {

// Of the pending states those whose values were assigned since the last call for this device.
std::vector<StatePtr> newly_pending_states(int device) REQUIRES(trace_mutex);

}  // namespace torch_xla
