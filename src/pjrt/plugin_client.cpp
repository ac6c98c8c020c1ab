#include "pjrt/plugin_client.h"

#include "base/env.h"
#include "base/hasher.h"
#include "pjrt/compile_options.h"
#include "pjrt/ffi_extension.h"

#include <fstream>
#include <sstream>

namespace torch_xla::pjrt {

namespace {

PJRT_NamedValue integer_option(const char* name, int64_t value) {
  PJRT_NamedValue option;
  std::memset(&option, 0, sizeof(option));
  option.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  option.name = name;
  option.name_size = std::strlen(name);
  option.type = PJRT_NamedValue_kInt64;
  option.int64_value = value;
  option.value_size = 1;
  return option;
}

// The processor's instruction sets: a program compiled for others may not run here.
std::string cpu_features() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) {
      return line;
    }
  }
  return "";
}

int64_t host_memory_bytes() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  info >> key >> kilobytes;
  return kilobytes * 1024;
}

struct Release {
  std::shared_ptr<void> keep_alive;
  const PJRT_Api* api;
  PJRT_Event* event;
};

// Runs when the device no longer reads the host's bytes.
void release_host_bytes(PJRT_Error* error, void* pointer) {
  std::unique_ptr<Release> release(static_cast<Release*>(pointer));
  if (error != nullptr) {
    auto destroy = PJRT_ARGS(PJRT_Error_Destroy);
    destroy.error = error;
    release->api->PJRT_Error_Destroy(&destroy);
  }
  auto destroy = PJRT_ARGS(PJRT_Event_Destroy);
  destroy.event = release->event;
  release->api->PJRT_Event_Destroy(&destroy);
}

}  // namespace

PluginClient::PluginClient(Plugin plugin, const std::string& device_type)
    : plugin_(std::move(plugin)) {
  auto create = PJRT_ARGS(PJRT_Client_Create);
  PJRT_NamedValue option;
  if (device_type == "CPU") {
    option = integer_option("cpu_device_count", env::integer("CPU_NUM_DEVICES"));
    create.create_options = &option;
    create.num_options = 1;
  }
  check(api(), api()->PJRT_Client_Create(&create), "PJRT_Client_Create",
        "starting the client of plugin " + plugin_.path);
  client_ = create.client;

  auto devices = PJRT_ARGS(PJRT_Client_AddressableDevices);
  devices.client = client_;
  PJRT_CALL(api(), PJRT_Client_AddressableDevices, devices);
  devices_.assign(devices.addressable_devices,
                  devices.addressable_devices + devices.num_addressable_devices);

  auto name = PJRT_ARGS(PJRT_Client_PlatformName);
  name.client = client_;
  PJRT_CALL(api(), PJRT_Client_PlatformName, name);
  platform_name_.assign(name.platform_name, name.platform_name_size);

  auto version = PJRT_ARGS(PJRT_Client_PlatformVersion);
  version.client = client_;
  PJRT_CALL(api(), PJRT_Client_PlatformVersion, version);
  plugin_version_.assign(version.platform_version, version.platform_version_size);
  plugin_version_ += " api 0." + std::to_string(api()->pjrt_api_version.minor_version);

  fingerprint_ = platform_name_ + "|" + plugin_version_ + "|" +
                 (host_memory() ? cpu_features() : device_description(0));
}

PJRT_Device* PluginClient::device(int index) const {
  if (index < 0 || static_cast<size_t>(index) >= devices_.size()) {
    throw Error("xla:" + std::to_string(index) + " does not exist: there are " +
                std::to_string(devices_.size()) + " devices");
  }
  return devices_[index];
}

std::string PluginClient::device_description(int index) const {
  auto describe = PJRT_ARGS(PJRT_Device_GetDescription);
  describe.device = device(index);
  PJRT_CALL(api(), PJRT_Device_GetDescription, describe);
  auto text = PJRT_ARGS(PJRT_DeviceDescription_ToString);
  text.device_description = describe.device_description;
  PJRT_CALL(api(), PJRT_DeviceDescription_ToString, text);
  return {text.to_string, text.to_string_size};
}

Client::MemoryStats PluginClient::memory_stats(int index) {
  MemoryStats stats;
  if (host_memory()) {
    stats.bytes_in_use = live_buffer_bytes();
    stats.bytes_limit = host_memory_bytes();
    stats.peak_bytes = stats.bytes_in_use;
    return stats;
  }
  auto args = PJRT_ARGS(PJRT_Device_MemoryStats);
  args.device = device(index);
  PJRT_CALL(api(), PJRT_Device_MemoryStats, args);
  stats.bytes_in_use = args.bytes_in_use;
  stats.bytes_limit = args.bytes_limit_is_set ? args.bytes_limit : 0;
  stats.peak_bytes = args.peak_bytes_in_use_is_set ? args.peak_bytes_in_use : args.bytes_in_use;
  return stats;
}

BufferPtr PluginClient::buffer_from_host(const void* data, const TensorType& type, int index,
                                         std::shared_ptr<void> keep_alive) {
  static const char kNothing[64] = {};
  auto args = PJRT_ARGS(PJRT_Client_BufferFromHostBuffer);
  args.client = client_;
  args.data = data == nullptr ? kNothing : data;
  args.type = buffer_type(type.dtype);
  args.dims = type.dims.data();
  args.num_dims = type.dims.size();
  args.host_buffer_semantics = keep_alive ? PJRT_HostBufferSemantics_kImmutableZeroCopy
                                          : PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args.device = device(index);
  PJRT_CALL(api(), PJRT_Client_BufferFromHostBuffer, args);
  auto buffer = std::make_shared<PluginBuffer>(*this, args.buffer, type, index);
  auto* release = new Release{std::move(keep_alive), api(), args.done_with_host_buffer};
  auto on_ready = PJRT_ARGS(PJRT_Event_OnReady);
  on_ready.event = args.done_with_host_buffer;
  on_ready.callback = &release_host_bytes;
  on_ready.user_arg = release;
  PJRT_CALL(api(), PJRT_Event_OnReady, on_ready);
  return buffer;
}

ExecutablePtr PluginClient::compile(const std::string& stablehlo, const CompileOptions& options,
                                    std::vector<TensorType> output_types) {
  static const std::string kFormat = "mlir";
  PJRT_Program program;
  std::memset(&program, 0, sizeof(program));
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(stablehlo.data());
  program.code_size = stablehlo.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  std::string encoded = encode_compile_options(options);
  auto args = PJRT_ARGS(PJRT_Client_Compile);
  args.client = client_;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  PJRT_CALL(api(), PJRT_Client_Compile, args);
  return std::make_shared<PluginExecutable>(*this, args.executable, std::move(output_types));
}

ExecutablePtr PluginClient::deserialize(const std::string& bytes, const CompileOptions& options,
                                        std::vector<TensorType> output_types) {
  std::string encoded = encode_compile_options(options);
  auto args = PJRT_ARGS(PJRT_Executable_DeserializeAndLoad);
  args.client = client_;
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  args.overridden_serialized_compile_options = encoded.data();
  args.overridden_serialized_compile_options_size = encoded.size();
  PJRT_CALL(api(), PJRT_Executable_DeserializeAndLoad, args);
  return std::make_shared<PluginExecutable>(*this, args.loaded_executable,
                                            std::move(output_types));
}

const PJRT_Extension_Base* PluginClient::find_extension(int type) const {
  for (const PJRT_Extension_Base* e = api()->extension_start; e != nullptr; e = e->next) {
    if (static_cast<int>(e->type) == type) {
      return e;
    }
  }
  return nullptr;
}

bool PluginClient::has_ffi() const {
  // The first plugins with the extension accept a registration and do not find it when compiling.
  constexpr int kFirstWorkingMinor = 100;
  return find_extension(PJRT_Extension_Type_FFI) != nullptr &&
         api()->pjrt_api_version.minor_version >= kFirstWorkingMinor;
}

void PluginClient::register_ffi_handler(const std::string& name, void* handler) {
  const auto* extension =
      reinterpret_cast<const FfiExtension*>(find_extension(PJRT_Extension_Type_FFI));
  if (extension == nullptr) {
    throw Error("plugin " + plugin_.path + " has no FFI extension");
  }
  static const std::string kPlatform = "Host";
  FfiRegisterHandlerArgs args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = kFfiRegisterHandlerArgsSize;
  args.target_name = name.data();
  args.target_name_size = name.size();
  args.handler = handler;
  args.platform_name = kPlatform.data();
  args.platform_name_size = kPlatform.size();
  check(api(), extension->register_handler(&args), "PJRT_FFI_Register_Handler");
}

}  // namespace torch_xla::pjrt
