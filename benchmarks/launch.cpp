// Host time of launching a ready program of 300 inputs and 200 outputs through Executable::execute,
// against the same PJRT calls made directly, in one run: what we add must stay below 60 us. Each
// launch includes the release of its outputs. TORCH_XLA_PLUGIN_PATH names the plugin.
#include "pjrt/plugin.h"
#include "pjrt/plugin_client.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace torch_xla::pjrt {
namespace {

constexpr int kInputs = 300;
constexpr int kOutputs = 200;
constexpr int kRounds = 60;
constexpr int kLaunchesPerRound = 20;

std::string trivial_additions() {
  std::string text = "module @launch {\n func.func public @main(";
  std::string results, types;
  for (int i = 0; i < kInputs; ++i) {
    text += (i > 0 ? ", %arg" : "%arg") + std::to_string(i) + ": tensor<4xf32>";
  }
  std::string body;
  for (int i = 0; i < kOutputs; ++i) {
    std::string separator = i > 0 ? ", " : "";
    std::string other = std::to_string(kInputs - 1 - i);
    body += "  %" + std::to_string(i) + " = stablehlo.add %arg" + std::to_string(i) + ", %arg" +
            other + " : tensor<4xf32>\n";
    results += separator + "%" + std::to_string(i);
    types += separator + "tensor<4xf32>";
  }
  return text + ") -> (" + types + ") {\n" + body + "  return " + results + " : " + types +
         "\n }\n}\n";
}

// PJRT's own program, launched without any of our classes.
class RawProgram {
 public:
  RawProgram(PluginClient& client, PJRT_LoadedExecutable* executable,
             const std::vector<Buffer*>& inputs)
      : client_(client), executable_(executable), outputs_(kOutputs) {
    for (Buffer* input : inputs) {
      arguments_.push_back(static_cast<PluginBuffer*>(input)->raw());
    }
    for (int64_t i = 0; i < kInputs; ++i) {
      kept_.push_back(i);
    }
  }

  void launch_and_release() {
    const PJRT_Api& table = client_.api().table();
    auto options = make_args<PJRT_ExecuteOptions>(PJRT_ExecuteOptions_STRUCT_SIZE);
    options.non_donatable_input_indices = kept_.data();
    options.num_non_donatable_input_indices = kept_.size();
    PJRT_Buffer* const* argument_list = arguments_.data();
    PJRT_Buffer** output_list = outputs_.data();
    auto args = PJRT_ARGS(PJRT_LoadedExecutable_Execute);
    args.executable = executable_;
    args.options = &options;
    args.argument_lists = &argument_list;
    args.num_devices = 1;
    args.num_args = arguments_.size();
    args.output_lists = &output_list;
    args.execute_device = client_.device(0);
    client_.api().check(table.PJRT_LoadedExecutable_Execute(&args), "raw execute");
    for (PJRT_Buffer* output : outputs_) {
      auto destroy = PJRT_ARGS(PJRT_Buffer_Destroy);
      destroy.buffer = output;
      client_.api().check(table.PJRT_Buffer_Destroy(&destroy), "raw destroy");
    }
  }

 private:
  PluginClient& client_;
  PJRT_LoadedExecutable* executable_;
  std::vector<PJRT_Buffer*> arguments_, outputs_;
  std::vector<int64_t> kept_;
};

template <typename Launch>
double microseconds_each(Launch&& launch) {
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunchesPerRound; ++i) {
    launch();
  }
  std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / kLaunchesPerRound;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run() {
  auto owner = start_plugin_client(find_plugin("CPU"), "CPU");
  auto& client = static_cast<PluginClient&>(*owner.release());  // never destroyed, as in a process
  TensorType type{DType::Float, {4}};
  const float values[4] = {1, 2, 3, 4};
  std::vector<BufferPtr> owned;
  std::vector<Buffer*> inputs;
  for (int i = 0; i < kInputs; ++i) {
    owned.push_back(client.buffer_from_host(values, type, 0, nullptr));
    inputs.push_back(owned.back().get());
  }
  ExecutablePtr ours =
      client.compile(trivial_additions(), {}, std::vector<TensorType>(kOutputs, type));
  RawProgram raw(client, static_cast<PluginExecutable&>(*ours).raw(), inputs);
  const std::vector<bool> donated(kInputs, false);

  std::vector<double> raw_times, our_times, differences;
  for (int round = 0; round < kRounds; ++round) {
    raw_times.push_back(microseconds_each([&] { raw.launch_and_release(); }));
    our_times.push_back(microseconds_each([&] { ours->execute(inputs, donated, 0); }));
    differences.push_back(our_times.back() - raw_times.back());
  }
  std::printf("%d inputs, %d outputs: PJRT alone %.1f us, execute() %.1f us, added %.1f us\n",
              kInputs, kOutputs, median(raw_times), median(our_times), median(differences));
  return median(differences) <= 60 ? 0 : 1;
}

}  // namespace
}  // namespace torch_xla::pjrt

int main() { return torch_xla::pjrt::run(); }
