#include "pjrt/plugin.h"

#include "base/env.h"
#include "base/mutex.h"
#include "pjrt/imports.h"
#include "pjrt/xla_flags.h"

#include <dlfcn.h>

#include <filesystem>

namespace torch_xla::pjrt {

namespace {

namespace fs = std::filesystem;

struct Finder {
  Mutex mutex;
  PluginFinder function GUARDED_BY(mutex);
};

Finder& finder() {
  static auto* instance = new Finder;
  return *instance;
}

std::string path_from_environment() {
  std::string path = env::path("TORCH_XLA_PLUGIN_PATH");
  return path.empty() ? env::path("PJRT_PLUGIN_LIBRARY_PATH") : path;
}

std::string path_from_finder(const std::string& device) {
  PluginFinder find;
  {
    MutexLock lock(finder().mutex);
    find = finder().function;
  }
  return find ? find(device) : "";
}

// For programs without Python: the embedded CPU plugin beside our library, or in the package next
// to ours (site-packages/torch_xla/lib/libtorch_xla.so).
std::string path_beside_us() {
  static const char kInThisLibrary = 0;
  Dl_info us;
  if (dladdr(&kInThisLibrary, &us) == 0) {
    return "";
  }
  std::error_code error;
  fs::path folder = fs::canonical(us.dli_fname, error).parent_path();
  for (const char* place : {"libpjrt_cpu.so", "../../fastatomstruct_xla_cpu/libpjrt_cpu.so"}) {
    fs::path candidate = folder / place;
    if (fs::is_regular_file(candidate, error)) {
      return candidate.lexically_normal().string();
    }
  }
  return "";
}

void check_version(const Api& api) {
  constexpr int kOldestMinor = 54;
  const PJRT_Api_Version& version = api.table().pjrt_api_version;
  if (version.major_version != PJRT_API_MAJOR || version.minor_version < kOldestMinor) {
    throw Error("the PJRT plugin " + api.plugin() + " speaks version " +
                std::to_string(version.major_version) + "." +
                std::to_string(version.minor_version) + " of the PJRT API, but " +
                std::to_string(PJRT_API_MAJOR) + "." + std::to_string(kOldestMinor) +
                " or a newer " + std::to_string(PJRT_API_MAJOR) +
                ".x is needed: install another version of the plugin");
  }
}

// Registers nothing.
int never_destroyed(void (*)(void*), void*, void*) { return 0; }

}  // namespace

void set_plugin_finder(PluginFinder function) {
  MutexLock lock(finder().mutex);
  finder().function = std::move(function);
}

std::string find_plugin(const std::string& device) {
  std::string path = path_from_environment();
  if (path.empty()) {
    path = path_from_finder(device);
  }
  if (path.empty() && device == "CPU") {
    path = path_beside_us();
  }
  if (path.empty()) {
    throw Error("no PJRT plugin was found for PJRT_DEVICE=" + device +
                ": install the plugin's package, or set TORCH_XLA_PLUGIN_PATH to the path of its "
                "library");
  }
  return path;
}

Api load_plugin(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error("cannot load the PJRT plugin " + path + ": " + dlerror() +
                " (TORCH_XLA_PLUGIN_PATH names another one)");
  }
  drop_unknown_xla_flags(path);
  watch_forks();
  // What the plugin makes at its first use stays until the process is gone, as the client does: a
  // thread may be compiling or computing with it while the process ends.
  redirect_imports(library, {{"__cxa_atexit", reinterpret_cast<void*>(&never_destroyed)},
                             {"getenv", reinterpret_cast<void*>(&getenv_of_plugin)}});
  auto get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    throw Error(path + " is not a PJRT plugin: it has no function GetPjrtApi");
  }
  const PJRT_Api* table = get_api();
  if (table == nullptr) {
    throw Error("the PJRT plugin " + path + " gave no function table");
  }
  Api api(table, path);
  check_version(api);
  auto args = PJRT_ARGS(PJRT_Plugin_Initialize);
  PJRT_CALL(api, PJRT_Plugin_Initialize, args, "starting the plugin");
  return api;
}

}  // namespace torch_xla::pjrt
