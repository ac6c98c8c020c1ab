#include "pjrt/compile_options.h"

namespace torch_xla::pjrt {

namespace {

// Field numbers of CompileOptionsProto and ExecutableBuildOptionsProto.
constexpr int kExecutableBuildOptions = 3;
constexpr int kCompilePortable = 4;
constexpr int kDeviceOrdinal = 1;
constexpr int kReplicas = 4;
constexpr int kPartitions = 5;
constexpr int kUseSpmd = 6;

void add_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void add_integer(std::string& out, int field, int64_t value) {
  add_varint(out, static_cast<uint64_t>(field) << 3);
  add_varint(out, static_cast<uint64_t>(value));
}

void add_message(std::string& out, int field, const std::string& message) {
  add_varint(out, (static_cast<uint64_t>(field) << 3) | 2);
  add_varint(out, message.size());
  out += message;
}

}  // namespace

std::string encode_compile_options(const CompileOptions& options) {
  std::string build;
  add_integer(build, kDeviceOrdinal, -1);
  add_integer(build, kReplicas, options.replicas);
  add_integer(build, kPartitions, options.partitions);
  if (options.spmd) {
    add_integer(build, kUseSpmd, 1);
  }
  std::string message;
  add_message(message, kExecutableBuildOptions, build);
  if (options.replicas == 1 && options.partitions == 1) {
    add_integer(message, kCompilePortable, 1);  // one program runs on any of the devices
  }
  return message;
}

}  // namespace torch_xla::pjrt
