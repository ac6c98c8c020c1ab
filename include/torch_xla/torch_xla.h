// The C++ interface of the xla device. Include it beside <torch/torch.h>; linking the library
// makes the device known to PyTorch. Any thread.
#pragma once

#include <torch_xla/assume_pure.h>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch_xla {

// Device `index`, or the calling thread's current one. Throws when there is no such device.
c10::Device device(std::optional<int> index = std::nullopt);
int device_count();

// Runs everything recorded on all devices. Returns once it is launched; with `wait`, once it is
// computed. Throws the errors of programs, the awaited ones included.
void sync(bool wait = false);

// Eager mode, for the process: operations run as they are called instead of being recorded.
void eager_mode(bool enabled);
// False inside a compiled function, whatever was set.
bool is_eager_mode();

struct CompileOptions {
  std::string name;         // of its programs, in messages
  bool full_graph = false;  // reading a value inside throws
  std::optional<int64_t> max_different_graphs;
  std::map<std::string, std::string> xla_options;  // by the name of XLA's flag
  // When its first runs are interpreted: as TORCH_XLA_TIERS, which holds if empty.
  std::string tiers;
};

class CompiledFunction;
std::shared_ptr<CompiledFunction> make_compiled_function(CompileOptions options);
// Between construction and end() operations of this thread are recorded, in eager mode too; what
// was pending before runs before. end() runs what was recorded; without it (an exception passes)
// the destructor does, and only warns of errors.
class CompileRegion {
 public:
  explicit CompileRegion(std::shared_ptr<CompiledFunction> function);
  ~CompileRegion();
  CompileRegion(const CompileRegion&) = delete;
  CompileRegion& operator=(const CompileRegion&) = delete;
  void end();

 private:
  std::unique_ptr<class RegionScope> scope_;
};

// `fn` as one program: a function that records a call of `fn` and runs it when `fn` returns.
template <typename Function>
auto compile(Function fn, CompileOptions options = {}) {
  return [fn = std::move(fn), compiled = make_compiled_function(std::move(options))](
             auto&&... arguments) -> decltype(auto) {
    CompileRegion region(compiled);
    if constexpr (std::is_void_v<decltype(fn(std::forward<decltype(arguments)>(arguments)...))>) {
      fn(std::forward<decltype(arguments)>(arguments)...);
      region.end();
    } else {
      decltype(auto) result = fn(std::forward<decltype(arguments)>(arguments)...);
      region.end();
      return result;
    }
  };
}

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
  bool compiled = false;       // false: its operations run one by one, so far
  bool from_disk = false;      // loaded from the disk cache instead of compiled
  size_t compilation = 0;      // the how-manieth of this name
  std::string cause;           // a word to count by: "first", "shape", "new operation"
  std::string reason, advice;  // sentences
};
// The latest 4096 of the process, the oldest first.
std::vector<Recompile> recompiles();

}  // namespace torch_xla
