// XLA_FLAGS, which the plugin reads at its first use: a flag that it does not know ends the process
// there. Called before, by whoever loads the plugin.
#pragma once

#include <string>
#include <string_view>

namespace torch_xla::pjrt {

// Takes flags out of XLA_FLAGS whose names the plugin's library does not have, and warns of them.
void drop_unknown_xla_flags(const std::string& library);

// Whether the user's XLA_FLAGS names the flag, which options of a program would override.
bool xla_flags_name(std::string_view flag);

// XLA_FLAGS as the plugin reads it: with ours behind the user's, unless these are in a file.
std::string xla_flags_of_plugin();

// In place of the plugin's `getenv`, so that nobody else in the process, and none of its children,
// reads our flags.
char* getenv_of_plugin(const char* name);

}  // namespace torch_xla::pjrt
