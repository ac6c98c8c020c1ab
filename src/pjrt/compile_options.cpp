#include "pjrt/compile_options.h"

#include "base/processor.h"
#include "pjrt/wire.h"
#include "pjrt/xla_flags.h"

#include <algorithm>
#include <string>
#include <thread>

namespace torch_xla::pjrt {

namespace {

// Field numbers of CompileOptionsProto and, inside it, ExecutableBuildOptionsProto and a map from
// names of XLA's flags to OptionOverrideProto.
constexpr int kExecutableBuildOptions = 3;
constexpr int kCompilePortable = 4;
constexpr int kFlags = 7;
constexpr int kDeviceOrdinal = 1;
constexpr int kReplicas = 4;
constexpr int kPartitions = 5;
constexpr int kUseSpmd = 6;
constexpr int kFreeOutputs = 12;
constexpr int kMapKey = 1, kMapValue = 2;
constexpr int kStringValue = 1, kBoolValue = 2;

void write_entry(std::string& message, std::string_view name, std::string_view value_message) {
  std::string entry;
  wire::write_bytes(entry, kMapKey, name);
  wire::write_bytes(entry, kMapValue, value_message);
  wire::write_bytes(message, kFlags, entry);
}

void write_flag(std::string& message, std::string_view name, bool value) {
  std::string value_message;
  wire::write_integer(value_message, kBoolValue, value);
  write_entry(message, name, value_message);
}

// XLA parses the text by the kind of the flag.
void write_flag(std::string& message, std::string_view name, const std::string& value) {
  std::string value_message;
  wire::write_bytes(value_message, kStringValue, value);
  write_entry(message, name, value_message);
}

std::string encode_platform_flags(std::string_view platform) {
  std::string message;
  if (platform == "foreign") {
    // Tests compile more than they compute.
    write_flag(message, "xla_backend_optimization_level", std::string("0"));
  }
  if (platform == "cpu" || platform == "foreign") {
    // By default XLA's CPU maximum(1, NaN) is 1 or NaN, whichever way the operands stand.
    write_flag(message, "xla_cpu_enable_fast_min_max", false);
    // More parts than processors compile no faster, and each has memory mappings of its own.
    unsigned parts = std::clamp(std::thread::hardware_concurrency(), 1u, 32u);
    write_flag(message, "xla_cpu_parallel_codegen_split_count", std::to_string(parts));
    constexpr std::string_view kVectorWidth = "xla_cpu_prefer_vector_width";
    if (processor::multiplies_bfloat16() && !xla_flags_name(kVectorWidth)) {
      write_flag(message, kVectorWidth, std::string("512"));
    }
  }
  return message;
}

}  // namespace

std::string encode_compile_options(const CompileOptions& options, std::string_view platform) {
  std::string build;
  wire::write_integer(build, kDeviceOrdinal, -1);
  wire::write_integer(build, kReplicas, options.replicas);
  wire::write_integer(build, kPartitions, options.partitions);
  if (options.spmd) {
    wire::write_integer(build, kUseSpmd, 1);
    for (bool free : options.free_outputs) {
      wire::write_integer(build, kFreeOutputs, free);
    }
  }
  std::string message;
  wire::write_bytes(message, kExecutableBuildOptions, build);
  if (options.replicas == 1 && options.partitions == 1) {
    wire::write_integer(message, kCompilePortable, 1);  // one program runs on any device
  }
  message += encode_platform_flags(platform);
  for (const auto& [name, value] : options.xla_options) {
    write_flag(message, name, value);
  }
  return message;
}

}  // namespace torch_xla::pjrt
