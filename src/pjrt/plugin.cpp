#include "pjrt/plugin.h"

#include "base/env.h"
#include "pjrt/api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

namespace torch_xla::pjrt {

namespace {

PluginFinder& finder() {
  static auto* instance = new PluginFinder;
  return *instance;
}

std::string find_library(const std::string& device) {
  for (const char* variable : {"TORCH_XLA_PLUGIN_PATH", "PJRT_PLUGIN_LIBRARY_PATH"}) {
    std::string path = env::string(variable);
    if (!path.empty()) {
      return path;
    }
  }
  if (finder()) {
    return finder()(device);
  }
  throw Error("no PJRT plugin for PJRT_DEVICE=" + device +
              ": set TORCH_XLA_PLUGIN_PATH to the path of its library");
}

void check_version(const PJRT_Api* api, const std::string& path) {
  constexpr int kOldestMinor = 54;
  const PJRT_Api_Version& version = api->pjrt_api_version;
  if (version.major_version != PJRT_API_MAJOR || version.minor_version < kOldestMinor) {
    throw Error("PJRT plugin " + path + " speaks version " +
                std::to_string(version.major_version) + "." +
                std::to_string(version.minor_version) + " of the PJRT API; 0." +
                std::to_string(kOldestMinor) + " or newer is needed: install a newer plugin");
  }
}

}  // namespace

void set_plugin_finder(PluginFinder f) { finder() = std::move(f); }

Plugin load_plugin(const std::string& device) {
  Plugin plugin;
  plugin.path = find_library(device);
  setenv("TF_CPP_MIN_LOG_LEVEL", "2", 0);  // start-up chatter is not for users
  void* library = dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error("cannot load PJRT plugin " + plugin.path + " for PJRT_DEVICE=" + device + ": " +
                dlerror());
  }
  auto get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    throw Error(plugin.path + " is not a PJRT plugin: it has no function GetPjrtApi");
  }
  plugin.api = get_api();
  check_version(plugin.api, plugin.path);
  auto args = PJRT_ARGS(PJRT_Plugin_Initialize);
  check(plugin.api, plugin.api->PJRT_Plugin_Initialize(&args), "PJRT_Plugin_Initialize",
        "starting plugin " + plugin.path);
  return plugin;
}

}  // namespace torch_xla::pjrt
