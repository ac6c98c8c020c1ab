#include "bindings.h"

#include "metrics/metrics.h"

namespace torch_xla {

namespace {

std::optional<int64_t> counter_value(const std::string& name) {
  bool found = false;
  int64_t value = metrics::counter_value(name, &found);
  return found ? std::optional(value) : std::nullopt;
}

pybind11::object metric_data(const std::string& name) {
  bool found = false;
  metrics::MetricData data = metrics::metric_data(name, &found);
  if (!found) {
    return pybind11::none();
  }
  return pybind11::make_tuple(data.count, data.total, data.samples);
}

}  // namespace

void bind_metrics(pybind11::module& m) {
  m.def("counter_names", &metrics::counter_names);
  m.def("counter_value", &counter_value);
  m.def("increment_counter",
        [](const std::string& name, int64_t by) { metrics::counter(name).add(by); });
  m.def("metric_names", &metrics::metric_names);
  m.def("metric_data", &metric_data);
  m.def("clear_counters", &metrics::clear_counters);
  m.def("clear_metrics", &metrics::clear_metrics);
  m.def("metrics_report", [] { return metrics::report(); });
  m.def("short_metrics_report", &metrics::short_report);
}

}  // namespace torch_xla
