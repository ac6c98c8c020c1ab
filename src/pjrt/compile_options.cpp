#include "pjrt/compile_options.h"

#include "pjrt/wire.h"

namespace torch_xla::pjrt {

namespace {

// Field numbers of CompileOptionsProto and, inside it, ExecutableBuildOptionsProto.
constexpr int kExecutableBuildOptions = 3;
constexpr int kCompilePortable = 4;
constexpr int kDeviceOrdinal = 1;
constexpr int kReplicas = 4;
constexpr int kPartitions = 5;
constexpr int kUseSpmd = 6;

}  // namespace

std::string encode_compile_options(const CompileOptions& options) {
  std::string build;
  wire::write_integer(build, kDeviceOrdinal, -1);
  wire::write_integer(build, kReplicas, options.replicas);
  wire::write_integer(build, kPartitions, options.partitions);
  if (options.spmd) {
    wire::write_integer(build, kUseSpmd, 1);
  }
  std::string message;
  wire::write_bytes(message, kExecutableBuildOptions, build);
  if (options.replicas == 1 && options.partitions == 1) {
    wire::write_integer(message, kCompilePortable, 1);  // one program runs on any device
  }
  return message;
}

}  // namespace torch_xla::pjrt
