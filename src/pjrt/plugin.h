// Finds and loads the PJRT plugin. The front end offers a finder that knows Python's packages; the
// core itself only knows explicit paths.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

struct PJRT_Api;

namespace torch_xla::pjrt {

// Called at most once, with PJRT_DEVICE's value; returns a library's path, or throws.
using PluginFinder = std::function<std::string(const std::string& device)>;
void set_plugin_finder(PluginFinder finder);

struct Plugin {
  const PJRT_Api* api = nullptr;
  std::string path;
};

// Loads the library and checks its version. Throws with what to do instead.
Plugin load_plugin(const std::string& device);

// Counts of buffers alive, all clients.
int64_t live_buffer_count();
int64_t live_buffer_bytes();

}  // namespace torch_xla::pjrt
