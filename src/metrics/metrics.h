// Counters and timed metrics, with the names PyTorch/XLA users know (metrics.inc lists them).
// Thread-safe; adding to a counter is one relaxed atomic.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch_xla::metrics {

class Counter {
 public:
  void add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }
  void clear() { value_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// Created on first use, never destroyed: keep the reference.
Counter& counter(const std::string& name);

enum class Unit { Nanoseconds, Bytes, Number };

class Metric {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Metric() = default;
  // `now` by whoever has just looked at the clock.
  virtual void add(double sample, Clock::time_point now = Clock::now()) = 0;
  // Counts one of many; whether it is one of those that are timed, for all.
  virtual bool begin_one_of_many() = 0;
};
// Created on first use, never destroyed. metrics.inc decides the unit of the names it has.
Metric& metric(const std::string& name, Unit unit = Unit::Nanoseconds);

// Adds the nanoseconds of its life to a metric.
class Timed {
 public:
  explicit Timed(Metric& metric) : metric_(metric), start_(Metric::Clock::now()) {}
  ~Timed() {
    const auto end = Metric::Clock::now();
    metric_.add(std::chrono::duration<double, std::nano>(end - start_).count(), end);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Metric& metric_;
  Metric::Clock::time_point start_;
};

// The same of what happens so often that looking at the clock would be felt: all are counted, and
// after the first few one in 16 is timed.
class TimedNowAndThen {
 public:
  explicit TimedNowAndThen(Metric& metric) {
    if (metric.begin_one_of_many()) {
      timed_.emplace(metric);
    }
  }

 private:
  std::optional<Timed> timed_;
};

struct MetricData {
  int64_t count = 0;
  double total = 0;  // of those that were not timed, what their like took
  std::vector<std::pair<double, double>> samples;  // (unix time, value), the newest last
  Unit unit = Unit::Nanoseconds;
};

std::vector<std::string> counter_names();  // those that counted since the last clear
std::vector<std::string> metric_names();
int64_t counter_value(const std::string& name, bool* found = nullptr);
MetricData metric_data(const std::string& name, bool* found = nullptr);
void clear_counters();
void clear_metrics();

// Everything that counted, in the format of PyTorch/XLA's reports.
std::string report(bool with_percentiles = true);
// What is named, or the telling ones of a kind of which nothing is; operators not lowered always.
std::string short_report(const std::vector<std::string>& counters,
                         const std::vector<std::string>& metrics);

// metrics.inc as a page for docs/metrics.md.
std::string markdown();

}  // namespace torch_xla::metrics
