#include "base/location.h"

#include "base/mutex.h"

#include <atomic>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace torch_xla {

namespace {

// Places of a program that writes its own code, or names its regions by step, never end. What comes
// later is unknown then.
constexpr size_t kMostLocations = size_t{1} << 18;
constexpr size_t kMostRenamed = size_t{1} << 14;

std::atomic<LocationProvider> location_provider{nullptr};
thread_local uint32_t last = 0;

// The regions the thread is in, and what locations became inside them.
struct Regions {
  std::vector<std::string> paths;
  std::map<std::pair<std::string, uint32_t>, uint32_t> renamed;
};
thread_local Regions regions;

uint32_t in_region(uint32_t id) {
  const std::string& path = regions.paths.back();
  if (regions.renamed.size() >= kMostRenamed) {
    regions.renamed.clear();
  }
  auto [it, inserted] = regions.renamed.try_emplace({path, id}, 0);
  if (inserted) {
    Location location = location_of(id);
    location.scope = location.scope.empty() ? path : path + "/" + location.scope;
    it->second = intern_location(std::move(location));
  }
  return it->second;
}

struct LocationTable {
  Mutex mutex;
  std::deque<Location> locations GUARDED_BY(mutex){Location{}};
  std::map<std::tuple<std::string, int, std::string>, uint32_t> ids GUARDED_BY(mutex);
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
  if (!regions.paths.empty()) {
    last = in_region(last);
  }
  return last;
}

void begin_region(const std::string& name) {
  regions.paths.push_back(regions.paths.empty() ? name : regions.paths.back() + "/" + name);
}

void end_region() {
  if (!regions.paths.empty()) {
    regions.paths.pop_back();
  }
}

uint32_t last_location() { return last; }

uint32_t intern_location(Location location) {
  LocationTable& t = table();
  MutexLock lock(t.mutex);
  if (t.locations.size() >= kMostLocations) {
    auto known = t.ids.find({location.file, location.line, location.scope});
    return known == t.ids.end() ? 0 : known->second;
  }
  auto [it, inserted] = t.ids.try_emplace({location.file, location.line, location.scope},
                                          static_cast<uint32_t>(t.locations.size()));
  if (inserted) {
    t.locations.push_back(std::move(location));
  }
  return it->second;
}

const Location& location_of(uint32_t id) {
  LocationTable& t = table();
  MutexLock lock(t.mutex);
  return t.locations[id < t.locations.size() ? id : 0];
}

}  // namespace torch_xla
