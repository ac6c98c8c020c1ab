#include "metrics/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <string_view>

namespace torch_xla::metrics {

namespace {

constexpr std::array kPercentiles = {1, 5, 10, 20, 50, 80, 90, 95, 99};

constexpr std::array<std::string_view, 3> kTellingCounters = {"CachedCompile", "UncachedCompile",
                                                              "MarkStep"};
constexpr std::array<std::string_view, 4> kTellingMetrics = {
    "CompileTime", "ExecuteTime", "TransferToDeviceTime", "TransferFromDeviceTime"};
// Counters of operators that ran as ATen kernels.
constexpr std::string_view kNotLowered = "aten::";

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char text[128];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof(text), pattern, arguments);
  va_end(arguments);
  return text;
}

// "06m09s401ms746.001us": from the largest unit that is not zero down to microseconds.
std::string duration_text(double nanoseconds) {
  struct Part {
    const char* pattern;
    int64_t nanoseconds;
  };
  constexpr Part kParts[] = {{"%02lldd", 86'400'000'000'000},
                             {"%02lldh", 3'600'000'000'000},
                             {"%02lldm", 60'000'000'000},
                             {"%02llds", 1'000'000'000},
                             {"%03lldms", 1'000'000}};
  std::string text;
  auto rest = static_cast<int64_t>(nanoseconds);
  for (const Part& part : kParts) {
    const int64_t amount = rest / part.nanoseconds;
    rest %= part.nanoseconds;
    if (amount != 0 || !text.empty()) {
      text += format(part.pattern, static_cast<long long>(amount));
    }
  }
  return text + format("%06.3fus", static_cast<double>(rest) * 1e-3);
}

std::string bytes_text(double bytes) {
  constexpr const char* kSuffixes[] = {"B", "KB", "MB", "GB", "TB"};
  size_t suffix = 0;
  while (bytes >= 1024 && suffix + 1 < std::size(kSuffixes)) {
    bytes /= 1024;
    ++suffix;
  }
  return format("%.2f%s", bytes, kSuffixes[suffix]);
}

std::string value_text(double value, Unit unit) {
  switch (unit) {
    case Unit::Nanoseconds:
      return duration_text(value);
    case Unit::Bytes:
      return bytes_text(value);
    case Unit::Number:
      break;
  }
  return format("%.2f", value);
}

std::string percentiles_text(const MetricData& data) {
  std::vector<double> values;
  for (const auto& [time, value] : data.samples) {
    values.push_back(value);
  }
  std::sort(values.begin(), values.end());
  std::string text;
  for (int percentile : kPercentiles) {
    const size_t rank = values.size() * static_cast<size_t>(percentile) / 100;
    text += text.empty() ? "" : "; ";
    text += std::to_string(percentile) + "%=" + value_text(values[rank], data.unit);
  }
  return "  Percentiles: " + text + "\n";
}

// Over the time from the first to the last sample kept.
std::string rates_text(const MetricData& data) {
  const double seconds = data.samples.back().first - data.samples.front().first;
  if (seconds <= 0) {
    return "";
  }
  double sum = 0;
  for (const auto& [time, value] : data.samples) {
    sum += value;
  }
  return "  ValueRate: " + value_text(sum / seconds, data.unit) + " / second\n" +
         format("  Rate: %g / second\n", static_cast<double>(data.samples.size()) / seconds);
}

std::string metric_text(const std::string& name, bool with_percentiles) {
  bool found = false;
  const MetricData data = metric_data(name, &found);
  if (!found) {
    return "";
  }
  return "Metric: " + name + "\n  TotalSamples: " + std::to_string(data.count) +
         "\n  Accumulator: " + value_text(data.total, data.unit) + "\n" + rates_text(data) +
         (with_percentiles ? percentiles_text(data) : "");
}

std::string counter_text(const std::string& name) {
  bool found = false;
  const int64_t value = counter_value(name, &found);
  return found ? "Counter: " + name + "\n  Value: " + std::to_string(value) + "\n" : "";
}

template <typename Names>
bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string report(bool with_percentiles) {
  std::string text;
  for (const std::string& name : metric_names()) {
    text += metric_text(name, with_percentiles);
  }
  for (const std::string& name : counter_names()) {
    text += counter_text(name);
  }
  return text;
}

std::string short_report(const std::vector<std::string>& counters,
                         const std::vector<std::string>& metrics) {
  std::string text;
  for (const std::string& name : metric_names()) {
    const bool wanted = metrics.empty() ? contains(kTellingMetrics, name) : contains(metrics, name);
    text += wanted ? metric_text(name, false) : "";
  }
  for (const std::string& name : counter_names()) {
    const bool wanted =
        counters.empty() ? contains(kTellingCounters, name) : contains(counters, name);
    text += wanted || name.starts_with(kNotLowered) ? counter_text(name) : "";
  }
  return text;
}

std::string markdown() {
  std::string counters;
  std::string metrics;
#define COUNTER(name, description) counters += "| `" #name "` | " description " |\n";
#define METRIC(name, unit, description) \
  metrics += "| `" #name "` | " + std::string(#unit) + " | " description " |\n";
#include "metrics/metrics.inc"
#undef METRIC
#undef COUNTER
  return "# Metrics\n\nGenerated from `src/metrics/metrics.inc`. "
         "`torch_xla.debug.metrics.metrics_report()` prints those that counted.\n\n"
         "## Metrics\n\n| Name | Unit | One sample is |\n|---|---|---|\n" +
         metrics + "\n## Counters\n\n| Name | Counts |\n|---|---|\n" + counters +
         "| `xla::<op>` | Recordings of an operator that becomes StableHLO, by a lowering or a "
         "composition of others. |\n"
         "| `pure::<function>::hit` (`miss`, `trace`) | The same as `PureHit` and its like, for "
         "one "
         "`assume_pure` function. |\n"
         "| `aten::<op>` | Recordings of an operator that runs as PyTorch's CPU kernel. |\n";
}

}  // namespace torch_xla::metrics
