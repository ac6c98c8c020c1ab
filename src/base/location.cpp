#include "base/location.h"

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>

namespace torch_xla {

namespace {

std::atomic<LocationProvider> location_provider{nullptr};
thread_local uint32_t last = 0;

struct LocationTable {
  std::mutex mutex;
  std::deque<Location> locations{Location{}};
  std::map<std::tuple<std::string, int, std::string>, uint32_t> ids;
};

LocationTable& table() {
  static auto* instance = new LocationTable;
  return *instance;
}

}  // namespace

std::string Location::str() const {
  return file.empty() ? "<unknown>" : file + ":" + std::to_string(line);
}

void set_location_provider(LocationProvider provider) { location_provider = provider; }

uint32_t current_location() {
  LocationProvider provider = location_provider.load(std::memory_order_relaxed);
  last = provider == nullptr ? 0 : provider();
  return last;
}

uint32_t last_location() { return last; }

uint32_t intern_location(Location location) {
  LocationTable& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  auto [it, inserted] = t.ids.try_emplace({location.file, location.line, location.scope},
                                          static_cast<uint32_t>(t.locations.size()));
  if (inserted) {
    t.locations.push_back(std::move(location));
  }
  return it->second;
}

const Location& location_of(uint32_t id) {
  LocationTable& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  return t.locations[id < t.locations.size() ? id : 0];
}

}  // namespace torch_xla
