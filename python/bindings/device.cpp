#include "bindings.h"

#include "pjrt/client.h"
#include "pjrt/doubles.h"
#include "pjrt/host_malloc.h"
#include "pjrt/live_buffers.h"
#include "pjrt/plugin.h"
#include "record/call.h"

namespace torch_xla {

namespace {

pybind11::dict memory_stats(int device) {
  pjrt::Client::MemoryStats stats;
  {
    pybind11::gil_scoped_release no_gil;
    stats = pjrt::memory_stats(device);
  }
  pybind11::dict result;
  result["bytes_used"] = stats.bytes_in_use;
  result["bytes_limit"] = stats.bytes_limit;
  result["peak_bytes"] = stats.peak_bytes;
  return result;
}

void set_plugin_finder(pybind11::object callback) {
  static auto* finder = new pybind11::object;
  *finder = std::move(callback);
  pjrt::set_plugin_finder([](const std::string& device) {
    pybind11::gil_scoped_acquire gil;
    return (*finder)(device).cast<std::string>();
  });
}

}  // namespace

void bind_device(pybind11::module& m) {
  m.def(
      "device_count", [] { return pjrt::client().device_count(); }, NoGil());
  m.def("device_count_hint", &pjrt::device_count_hint, NoGil());
  m.def("client_started", &pjrt::client_started);
  m.def(
      "platform_name", [] { return pjrt::client().platform_name(); }, NoGil());
  m.def(
      "plugin_version", [] { return pjrt::client().plugin_version(); }, NoGil());
  m.def(
      "device_description", [](int device) { return pjrt::client().device_description(device); },
      NoGil());
  m.def(
      "host_memory", [] { return pjrt::client().host_memory(); }, NoGil());
  m.def(
      "has_ffi", [] { return pjrt::client().has_ffi(); }, NoGil());
  m.def(
      "has_doubles", [] { return pjrt::device_dtype(at::kDouble) == at::kDouble; }, NoGil());
  m.def("live_buffer_count", &pjrt::live_buffer_count);
  m.def("memory_stats", &memory_stats);
  m.def("reset_peak_memory", [](int device) { pjrt::device_memory(device).reset_peak(); });
  m.def("release_freed_memory", &pjrt::release_freed_memory, NoGil());
  m.def("set_plugin_finder", &set_plugin_finder);
  m.def("current_device", &current_device);
  m.def("set_current_device", &set_current_device);
}

}  // namespace torch_xla
