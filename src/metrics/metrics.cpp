#include "metrics/metrics.h"

#include "base/mutex.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

namespace torch_xla::metrics {

namespace {

// Samples kept for percentiles and rates; totals cover all.
constexpr size_t kKeptSamples = 1024;

// Of many: how many are timed at first, and one in how many later.
constexpr int64_t kTimedAtFirst = 256;
constexpr int64_t kTimedOnceIn = 16;

// Of the first so many.
int64_t untimed_of(int64_t many) {
  const int64_t later = std::max<int64_t>(many - kTimedAtFirst, 0);
  return later - (later + kTimedOnceIn - 1) / kTimedOnceIn;
}

Unit declared_unit(const std::string& name, Unit otherwise) {
  static const auto& units = *new std::map<std::string_view, Unit>{
#define COUNTER(name, description)
#define METRIC(name, unit, description) {#name, Unit::unit},
#include "metrics/metrics.inc"
#undef METRIC
#undef COUNTER
  };
  auto found = units.find(name);
  return found == units.end() ? otherwise : found->second;
}

class SampledMetric : public Metric {
 public:
  explicit SampledMetric(Unit unit) : unit_(unit) {}

  void add(double sample, Clock::time_point now) override {
    MutexLock lock(mutex_);
    total_ += sample;
    const std::pair<Clock::time_point, double> taken(now, sample);
    if (samples_.size() < kKeptSamples) {
      samples_.push_back(taken);
    } else {
      samples_[count_ % kKeptSamples] = taken;
    }
    ++count_;
  }

  bool begin_one_of_many() override {
    const int64_t before = many_.fetch_add(1, std::memory_order_relaxed);
    return untimed_of(before + 1) == untimed_of(before);
  }

  MetricData data() const {
    using Seconds = std::chrono::duration<double>;
    MutexLock lock(mutex_);
    const Seconds unix_now = std::chrono::system_clock::now().time_since_epoch();
    const Clock::time_point now = Clock::now();
    const auto timed = static_cast<int64_t>(count_);
    const int64_t count = timed + untimed_of(many_.load(std::memory_order_relaxed));
    const double each = timed > 0 ? total_ / static_cast<double>(timed) : 0;
    MetricData data{count, each * static_cast<double>(count), {}, unit_};
    for (size_t i = count_ - samples_.size(); i < count_; ++i) {
      const auto& [moment, sample] = samples_[i % kKeptSamples];
      data.samples.emplace_back((unix_now - Seconds(now - moment)).count(), sample);
    }
    return data;
  }

  void clear() {
    MutexLock lock(mutex_);
    count_ = 0;
    total_ = 0;
    samples_.clear();
    many_ = 0;
  }

 private:
  const Unit unit_;
  mutable Mutex mutex_;
  size_t count_ GUARDED_BY(mutex_) = 0;
  double total_ GUARDED_BY(mutex_) = 0;
  std::atomic<int64_t> many_{0};
  // The sample of each count, until that many later overwrite it.
  std::vector<std::pair<Clock::time_point, double>> samples_ GUARDED_BY(mutex_);
};

// Leaked: threads may still count while the process ends.
struct Registry {
  Mutex mutex;
  std::map<std::string, std::unique_ptr<Counter>> counters GUARDED_BY(mutex);
  std::map<std::string, std::unique_ptr<SampledMetric>> metrics GUARDED_BY(mutex);
};

Registry& registry() {
  static Registry* registry = new Registry;
  return *registry;
}

}  // namespace

Counter& counter(const std::string& name) {
  MutexLock lock(registry().mutex);
  auto& entry = registry().counters[name];
  if (entry == nullptr) {
    entry = std::make_unique<Counter>();
  }
  return *entry;
}

Metric& metric(const std::string& name, Unit unit) {
  MutexLock lock(registry().mutex);
  auto& entry = registry().metrics[name];
  if (entry == nullptr) {
    entry = std::make_unique<SampledMetric>(declared_unit(name, unit));
  }
  return *entry;
}

std::vector<std::string> counter_names() {
  MutexLock lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, counter] : registry().counters) {
    if (counter->value() != 0) {
      names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> metric_names() {
  MutexLock lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, metric] : registry().metrics) {
    if (metric->data().count != 0) {
      names.push_back(name);
    }
  }
  return names;
}

int64_t counter_value(const std::string& name, bool* found) {
  MutexLock lock(registry().mutex);
  auto entry = registry().counters.find(name);
  const int64_t value = entry == registry().counters.end() ? 0 : entry->second->value();
  if (found != nullptr) {
    *found = value != 0;
  }
  return value;
}

MetricData metric_data(const std::string& name, bool* found) {
  MutexLock lock(registry().mutex);
  auto entry = registry().metrics.find(name);
  MetricData data;
  if (entry != registry().metrics.end()) {
    data = entry->second->data();
  }
  if (found != nullptr) {
    *found = data.count != 0;
  }
  return data;
}

void clear_counters() {
  MutexLock lock(registry().mutex);
  for (auto& [name, counter] : registry().counters) {
    counter->clear();
  }
}

void clear_metrics() {
  MutexLock lock(registry().mutex);
  for (auto& [name, metric] : registry().metrics) {
    metric->clear();
  }
}

}  // namespace torch_xla::metrics
