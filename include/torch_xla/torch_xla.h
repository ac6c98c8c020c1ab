// The C++ interface of the xla device. Include it beside <torch/torch.h>; linking the library
// makes the device known to PyTorch. Any thread.
#pragma once

#include <torch_xla/assume_pure.h>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace torch_xla {

// Device `index`, or the calling thread's current one. Throws when there is no such device.
c10::Device device(std::optional<int> index = std::nullopt);
int device_count();

// Runs everything recorded on all devices. Returns once it is launched; with `wait`, once it is
// computed. Throws the errors of programs, the awaited ones included.
void sync(bool wait = false);

// Moves a tensor in place: every handle of it (a parameter in a module, in an optimizer) is on
// `device` afterwards. Before any backward through it.
void move_tensor(const at::Tensor& tensor, c10::Device device);

// Moves a torch::nn module; `module->to(device)` cannot, because PyTorch's C++ interface refuses
// to change the kind of a parameter's device.
template <typename Module>
void move(Module& module, c10::Device device) {
  for (const auto& parameter : module.parameters()) {
    move_tensor(parameter, device);
  }
  for (const auto& buffer : module.buffers()) {
    move_tensor(buffer, device);
  }
}

// Everything counted so far as text (docs/metrics.md), and one counter's value.
std::string metrics_report();
int64_t counter_value(const std::string& name);
// Number of samples of a timed metric: counter_value's counterpart.
int64_t sample_count(const std::string& name);
void clear_metrics();

// One compilation, and why it was needed (docs/debugging_recompilation.md).
struct Recompile {
  std::string name;  // of the graph: "sync at train.cpp:42" where none was given
  std::string file;  // the line that triggered it; empty: unknown (no front end records lines)
  int line = 0;
  double seconds = 0;
  size_t operations = 0;
  bool from_disk = false;      // loaded from the disk cache instead of compiled
  size_t compilation = 0;      // the how-manieth of this name
  std::string cause;           // a word to count by: "first", "shape", "new operation"
  std::string reason, advice;  // sentences
};
// The latest 4096 of the process, the oldest first.
std::vector<Recompile> recompiles();

}  // namespace torch_xla
