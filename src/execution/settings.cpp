#include "execution/settings.h"

#include "base/error.h"
#include "base/mutex.h"
#include "pjrt/client.h"
#include "pjrt/sharded_buffer.h"
#include "tiers/policy.h"
#include "trace/region.h"

namespace torch_xla {

namespace {

struct Settings {
  Mutex mutex;
  std::map<std::string, std::string> options GUARDED_BY(mutex);
  std::string precision GUARDED_BY(mutex) = "DEFAULT";
};

Settings& settings() {
  static auto* instance = new Settings;
  return *instance;
}

}  // namespace

void set_default_options(std::map<std::string, std::string> options) {
  MutexLock lock(settings().mutex);
  settings().options = std::move(options);
}

void set_precision(const std::string& precision) {
  if (precision != "DEFAULT" && precision != "HIGH" && precision != "HIGHEST") {
    throw Error("the precision of products is 'default', 'high' or 'highest', got '" + precision +
                "'");
  }
  MutexLock lock(settings().mutex);
  settings().precision = precision;
}

std::string precision() {
  MutexLock lock(settings().mutex);
  return settings().precision;
}

std::map<std::string, std::string> current_options() {
  std::map<std::string, std::string> options;
  if (const ActiveRegion* region = current_region()) {
    options = region->function->xla_options;
  }
  MutexLock lock(settings().mutex);
  options.insert(settings().options.begin(), settings().options.end());
  return options;
}

bool interprets_first() {
  return pjrt::client().host_memory() && pjrt::partitions() == 1 &&
         tiers::from_environment().policy != tiers::Policy::Off;
}

void apply_settings(Graph& graph) {
  graph.xla_options = current_options();
  graph.precision = precision();
}

}  // namespace torch_xla
