// Host time of launching a ready program of 300 inputs and 200 outputs through Executable::execute,
// against the same PJRT calls made directly, in one run: what we add must stay below 60 us on one
// device, and below 1 us a shard on eight. Each launch includes the release of its outputs.
// TORCH_XLA_PLUGIN_PATH names the plugin.
#include "pjrt/plugin.h"
#include "pjrt/plugin_client.h"
#include "pjrt/sharded_buffer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace torch_xla::pjrt {
namespace {

constexpr int kInputs = 300;
constexpr int kOutputs = 200;
constexpr int kRounds = 60;
constexpr int kLaunchesPerRound = 20;
const TensorType kType{DType::Float, {16}};

// On one device, or on all of `sharding`.
std::string trivial_additions(ShardingPtr sharding) {
  const size_t devices = sharding == nullptr ? 1 : sharding->devices().size();
  const std::string attribute =
      sharding == nullptr ? "" : " {mhlo.sharding = \"" + sharding->text() + "\"}";
  std::string text = "module @launch attributes {mhlo.num_partitions = " + std::to_string(devices) +
                     " : i32, mhlo.num_replicas = 1 : i32} {\n func.func public @main(";
  std::string results, types;
  for (int i = 0; i < kInputs; ++i) {
    text += (i > 0 ? ", %arg" : "%arg") + std::to_string(i) + ": tensor<16xf32>" + attribute;
  }
  std::string body;
  for (int i = 0; i < kOutputs; ++i) {
    std::string separator = i > 0 ? ", " : "";
    std::string other = std::to_string(kInputs - 1 - i);
    body += "  %" + std::to_string(i) + " = stablehlo.add %arg" + std::to_string(i) + ", %arg" +
            other + " : tensor<16xf32>\n";
    results += separator + "%" + std::to_string(i);
    types += separator + "tensor<16xf32>";
  }
  return text + ") -> (" + types + ") {\n" + body + "  return " + results + " : " + types +
         "\n }\n}\n";
}

// PJRT's own program, launched without any of our classes.
class RawProgram {
 public:
  RawProgram(PluginClient& client, PJRT_LoadedExecutable* executable,
             const std::vector<Buffer*>& inputs, int devices)
      : client_(client),
        executable_(executable),
        devices_(devices),
        outputs_(static_cast<size_t>(kOutputs * devices)) {
    for (int device = 0; device < devices; ++device) {
      for (Buffer* input : inputs) {
        Buffer* piece = devices == 1 ? input : piece_of(*input, device);
        arguments_.push_back(static_cast<PluginBuffer*>(piece)->raw());
      }
    }
    for (int64_t i = 0; i < kInputs; ++i) {
      kept_.push_back(i);
    }
    for (int device = 0; device < devices; ++device) {
      argument_lists_.push_back(arguments_.data() + device * kInputs);
      output_lists_.push_back(outputs_.data() + device * kOutputs);
    }
  }

  void launch_and_release() {
    const PJRT_Api& table = client_.api().table();
    auto options = make_args<PJRT_ExecuteOptions>(PJRT_ExecuteOptions_STRUCT_SIZE);
    options.non_donatable_input_indices = kept_.data();
    options.num_non_donatable_input_indices = kept_.size();
    auto args = PJRT_ARGS(PJRT_LoadedExecutable_Execute);
    args.executable = executable_;
    args.options = &options;
    args.argument_lists = argument_lists_.data();
    args.num_devices = static_cast<size_t>(devices_);
    args.num_args = kInputs;
    args.output_lists = output_lists_.data();
    args.execute_device = devices_ == 1 ? client_.device(0) : nullptr;
    client_.api().check(table.PJRT_LoadedExecutable_Execute(&args), "raw execute");
    for (PJRT_Buffer* output : outputs_) {
      auto destroy = PJRT_ARGS(PJRT_Buffer_Destroy);
      destroy.buffer = output;
      client_.api().check(table.PJRT_Buffer_Destroy(&destroy), "raw destroy");
    }
  }

 private:
  static Buffer* piece_of(Buffer& input, int device) {
    return static_cast<ShardedBuffer&>(input).pieces()[static_cast<size_t>(device)].get();
  }

  PluginClient& client_;
  PJRT_LoadedExecutable* executable_;
  int devices_;
  std::vector<PJRT_Buffer*> arguments_, outputs_;
  std::vector<PJRT_Buffer* const*> argument_lists_;
  std::vector<PJRT_Buffer**> output_lists_;
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

// Microseconds that execute() adds to a launch; prints them.
double added(PluginClient& client, int devices) {
  const std::vector<float> values(16, 1.0f);
  std::vector<int64_t> all(static_cast<size_t>(devices));
  std::iota(all.begin(), all.end(), 0);
  ShardingPtr sharding = devices == 1 ? nullptr : Sharding::tiled({devices}, all);
  std::vector<BufferPtr> owned;
  std::vector<Buffer*> inputs;
  for (int i = 0; i < kInputs; ++i) {
    owned.push_back(sharding == nullptr
                        ? client.buffer_from_host(values.data(), kType, 0, nullptr)
                        : scatter_from_host(client, values.data(), kType, sharding, nullptr));
    inputs.push_back(owned.back().get());
  }
  CompileOptions options;
  options.partitions = devices;
  options.spmd = devices > 1;
  options.free_outputs.assign(devices > 1 ? kOutputs : 0, true);
  ExecutablePtr ours = client.compile(trivial_additions(sharding), options,
                                      std::vector<TensorType>(kOutputs, kType));
  RawProgram raw(client, static_cast<PluginExecutable&>(*ours).raw(), inputs, devices);
  const std::vector<bool> donated(kInputs, false);

  std::vector<double> raw_times, our_times, differences;
  for (int round = 0; round < kRounds; ++round) {
    raw_times.push_back(microseconds_each([&] { raw.launch_and_release(); }));
    our_times.push_back(microseconds_each([&] { ours->execute(inputs, donated, 0); }));
    differences.push_back(our_times.back() - raw_times.back());
  }
  std::printf("%d inputs, %d outputs, %d device%s: PJRT alone %.1f us, execute() %.1f us, ",
              kInputs, kOutputs, devices, devices > 1 ? "s" : "", median(raw_times),
              median(our_times));
  std::printf("added %.1f us", median(differences));
  return median(differences);
}

int run() {
  setenv("CPU_NUM_DEVICES", "8", 1);
  auto owner = start_plugin_client(find_plugin("CPU"), "CPU");
  auto& client = static_cast<PluginClient&>(*owner.release());  // never destroyed, as in a process
  const double one = added(client, 1);
  std::printf("\n");
  const int devices = client.device_count();
  const double shard = added(client, devices) / ((kInputs + kOutputs) * devices);
  std::printf(", %.3f us a shard\n", shard);
  return one <= 60 && shard <= 1 ? 0 : 1;
}

}  // namespace
}  // namespace torch_xla::pjrt

int main() { return torch_xla::pjrt::run(); }
