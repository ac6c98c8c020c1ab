// XLA_FLAGS, which the plugin reads at its first use: a flag that it does not know ends the process
// there. Called before, by whoever loads the plugin.
#pragma once

#include <string>

namespace torch_xla::pjrt {

// Takes flags out of XLA_FLAGS whose names the plugin's library does not have, and warns of them.
void drop_unknown_xla_flags(const std::string& library);

}  // namespace torch_xla::pjrt
