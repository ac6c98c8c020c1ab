// Finds and loads the PJRT plugin. The front end offers a finder that knows Python's packages; the
// core itself only knows explicit paths and the places around its own library.
#pragma once

#include "pjrt/api.h"

#include <functional>
#include <string>

namespace torch_xla::pjrt {

// Called with PJRT_DEVICE's value when the client starts; returns a library's path, or throws with
// what to install. An empty path means that it knows of none.
using PluginFinder = std::function<std::string(const std::string& device)>;
void set_plugin_finder(PluginFinder finder);

// Path of the library for `device`: the environment's, else the finder's, else one installed beside
// our own library. Throws with what to do when there is none.
std::string find_plugin(const std::string& device);

// Loads the library and checks its version. Throws with what to do instead.
Api load_plugin(const std::string& path);

}  // namespace torch_xla::pjrt
