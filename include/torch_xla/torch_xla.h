// The C++ interface of the xla device. Include it beside <torch/torch.h>; linking the library
// makes the device known to PyTorch. Any thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace torch_xla {

// Device `index`, or the calling thread's current one. Throws when there is no such device.
c10::Device device(std::optional<int> index = std::nullopt);
int device_count();

// Runs everything recorded on all devices. Returns once it is launched; with `wait`, once it is
// computed. Throws the errors of programs, the awaited ones included.
void sync(bool wait = false);

// Everything counted so far as text (docs/metrics.md), and one counter's value.
std::string metrics_report();
int64_t counter_value(const std::string& name);
// Number of samples of a timed metric: counter_value's counterpart.
int64_t sample_count(const std::string& name);
void clear_metrics();

}  // namespace torch_xla
