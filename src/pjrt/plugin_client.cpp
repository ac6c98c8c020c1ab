#include "pjrt/plugin_client.h"

#include "base/env.h"
#include "base/mutex.h"
#include "pjrt/compile_options.h"
#include "pjrt/doubles.h"
#include "pjrt/ffi_extension.h"
#include "pjrt/host_malloc.h"
#include "pjrt/key_value.h"
#include "pjrt/machine.h"
#include "pjrt/plugin.h"
#include "pjrt/processes.h"
#include "pjrt/profiler.h"

#include <algorithm>
#include <cstdlib>

namespace torch_xla::pjrt {

namespace {

PJRT_NamedValue integer_option(std::string_view name, int64_t value) {
  auto option = make_args<PJRT_NamedValue>(PJRT_NamedValue_STRUCT_SIZE);
  option.name = name.data();
  option.name_size = name.size();
  option.type = PJRT_NamedValue_kInt64;
  option.int64_value = value;
  option.value_size = 1;
  return option;
}

// Transfers from the host that the plugin's threads have not ended yet.
class Uploads {
 public:
  static Uploads& instance() {
    static auto* uploads = new Uploads;
    return *uploads;
  }
  void begin() {
    MutexLock lock(mutex_);
    ++under_way_;
  }
  void end() {
    MutexLock lock(mutex_);
    --under_way_;
    ended_.notify_all();
  }
  void await_all() {
    constexpr auto kPatience = std::chrono::seconds(2);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    MutexLock lock(mutex_);
    while (under_way_ > 0 && ended_.wait_until(lock, until)) {
    }
  }

 private:
  Mutex mutex_;
  Condition ended_;
  int64_t under_way_ GUARDED_BY(mutex_) = 0;
};

// `keep_alive` is what the device reads from, until its event says that it no longer does.
// `uploaded`: else the bytes are the buffer, as long as it lives.
void release_when_done(const Api& api, PJRT_Event* done, std::shared_ptr<void> keep_alive,
                       bool uploaded) {
  auto event = std::make_shared<Event>(api, done);
  if (!keep_alive) {
    return;  // the call has copied the bytes
  }
  if (uploaded) {
    Uploads::instance().begin();
  }
  on_ready(std::move(event), [keep_alive = std::move(keep_alive), uploaded]() mutable {
    keep_alive.reset();
    if (uploaded) {
      Uploads::instance().end();
    }
  });
}

PJRT_Program mlir_program(const std::string& text) {
  static constexpr std::string_view kFormat = "mlir";
  auto program = make_args<PJRT_Program>(PJRT_Program_STRUCT_SIZE);
  program.code = const_cast<char*>(text.data());
  program.code_size = text.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

}  // namespace

void await_uploads() { Uploads::instance().await_all(); }

PluginClient::PluginClient(Api api, const std::string& device_type) : api_(std::move(api)) {
  create(device_type);

  auto devices = PJRT_ARGS(PJRT_Client_AddressableDevices);
  devices.client = client_;
  PJRT_CALL(api_, PJRT_Client_AddressableDevices, devices);
  devices_.assign(devices.addressable_devices,
                  devices.addressable_devices + devices.num_addressable_devices);
  if (devices_.empty()) {
    throw Error("the PJRT plugin " + api_.plugin() + " found no device for PJRT_DEVICE=" +
                device_type + ": check the machine, or set PJRT_DEVICE=CPU");
  }
  number_devices();

  auto name = PJRT_ARGS(PJRT_Client_PlatformName);
  name.client = client_;
  PJRT_CALL(api_, PJRT_Client_PlatformName, name);
  platform_name_.assign(name.platform_name, name.platform_name_size);
  if (host_memory()) {
    keep_freed_memory(api_.plugin());
  } else {
    set_has_doubles(takes_doubles());
  }
  plugin_version_ = describe_version();
  fingerprint_ = platform_name_ + "|" + plugin_version_ + "|" +
                 (host_memory() ? cpu_features() : device_description(0));
}

void PluginClient::create(const std::string& device_type) {
  auto args = PJRT_ARGS(PJRT_Client_Create);
  std::vector<PJRT_NamedValue> options;
  if (device_type == "CPU") {
    options.push_back(integer_option("cpu_device_count", env::integer("CPU_NUM_DEVICES")));
  }
  if (processes().count > 1) {
    set_key_value_callbacks(args);
    options.push_back(integer_option("node_id", processes().index));
    options.push_back(integer_option("num_nodes", processes().count));
  }
  args.create_options = options.data();
  args.num_options = options.size();
  std::string doing = "starting the client for PJRT_DEVICE=" + device_type;
  PJRT_CALL(api_, PJRT_Client_Create, args, doing.c_str());
  client_ = args.client;
}

// A program's partitions are the devices of all processes in the order of their numbers.
void PluginClient::number_devices() {
  auto id_of = [this](PJRT_Device* device) {
    auto describe = PJRT_ARGS(PJRT_Device_GetDescription);
    describe.device = device;
    PJRT_CALL(api_, PJRT_Device_GetDescription, describe);
    auto id = PJRT_ARGS(PJRT_DeviceDescription_Id);
    id.device_description = describe.device_description;
    PJRT_CALL(api_, PJRT_DeviceDescription_Id, id);
    return id.id;
  };
  auto all = PJRT_ARGS(PJRT_Client_Devices);
  all.client = client_;
  PJRT_CALL(api_, PJRT_Client_Devices, all);
  global_devices_ = static_cast<int>(all.num_devices);
  std::vector<int> ids;
  for (size_t i = 0; i < all.num_devices; ++i) {
    ids.push_back(id_of(all.devices[i]));
  }
  std::sort(ids.begin(), ids.end());
  // Ours, too: a launch gives and takes the pieces of values in the order of the partitions.
  std::sort(devices_.begin(), devices_.end(),
            [&](PJRT_Device* a, PJRT_Device* b) { return id_of(a) < id_of(b); });
  for (PJRT_Device* device : devices_) {
    auto found = std::lower_bound(ids.begin(), ids.end(), id_of(device));
    partitions_.push_back(static_cast<int>(found - ids.begin()));
  }
  if (processes().count > 1 && static_cast<size_t>(global_devices_) == devices_.size()) {
    throw Error("the PJRT plugin " + api_.plugin() + " does not connect processes: this one is " +
                std::to_string(processes().index) + " of " + std::to_string(processes().count) +
                " and sees its own " + std::to_string(global_devices_) +
                " devices only. Use one process, or a plugin for several hosts");
  }
}

// "cpu, PJRT API 0.106, stablehlo_current_version 1.16.1, ...": plugins differ in what they tell.
std::string PluginClient::describe_version() const {
  auto version = PJRT_ARGS(PJRT_Client_PlatformVersion);
  version.client = client_;
  PJRT_CALL(api_, PJRT_Client_PlatformVersion, version);
  std::string text(version.platform_version, version.platform_version_size);
  text +=
      ", PJRT API " + std::to_string(PJRT_API_MAJOR) + "." + std::to_string(api_.minor_version());
  auto attributes = PJRT_ARGS(PJRT_Plugin_Attributes);
  PJRT_CALL(api_, PJRT_Plugin_Attributes, attributes);
  for (size_t i = 0; i < attributes.num_attributes; ++i) {
    const PJRT_NamedValue& value = attributes.attributes[i];
    text += ", " + std::string(value.name, value.name_size) + " ";
    if (value.type == PJRT_NamedValue_kString) {
      text.append(value.string_value, value.value_size);
    } else if (value.type == PJRT_NamedValue_kInt64) {
      text += std::to_string(value.int64_value);
    } else if (value.type == PJRT_NamedValue_kInt64List) {
      for (size_t j = 0; j < value.value_size; ++j) {
        text += (j > 0 ? "." : "") + std::to_string(value.int64_array_value[j]);
      }
    }
  }
  return text;
}

PJRT_Device* PluginClient::device(int index) const {
  if (index < 0 || static_cast<size_t>(index) >= devices_.size()) {
    throw Error("xla:" + std::to_string(index) + " does not exist: there are " +
                std::to_string(devices_.size()) + " devices, numbered from 0" +
                (host_memory() ? " (CPU_NUM_DEVICES sets how many)" : ""));
  }
  return devices_[static_cast<size_t>(index)];
}

std::string PluginClient::device_description(int index) const {
  auto describe = PJRT_ARGS(PJRT_Device_GetDescription);
  describe.device = device(index);
  PJRT_CALL(api_, PJRT_Device_GetDescription, describe);
  auto text = PJRT_ARGS(PJRT_DeviceDescription_ToString);
  text.device_description = describe.device_description;
  PJRT_CALL(api_, PJRT_DeviceDescription_ToString, text);
  return {text.to_string, text.to_string_size};
}

// No call of the interface tells, so it is tried.
bool PluginClient::takes_doubles() {
  const double some = 0.5;
  try {
    Client::buffer_from_host(&some, {DType::Double, {}}, 0, nullptr)->await_ready();
    return true;
  } catch (const Error&) {
    return false;
  }
}

Client::MemoryStats PluginClient::memory_stats(int index) {
  auto args = PJRT_ARGS(PJRT_Device_MemoryStats);
  args.device = device(index);
  const DeviceMemory& memory = device_memory(index);
  MemoryStats stats{memory.in_use(), host_memory_bytes(), memory.peak()};
  if (host_memory()) {
    return stats;  // CPU plugins do not count
  }
  stats.bytes_limit = 0;
  if (!api_.offers(&PJRT_Api::PJRT_Device_MemoryStats)) {
    return stats;
  }
  if (PJRT_Error* error = api_.table().PJRT_Device_MemoryStats(&args)) {
    api_.discard(error);  // nor do all others
    return stats;
  }
  stats.bytes_in_use = args.bytes_in_use;
  stats.bytes_limit = args.bytes_limit_is_set ? args.bytes_limit : 0;
  stats.peak_bytes = args.peak_bytes_in_use_is_set ? args.peak_bytes_in_use : args.bytes_in_use;
  return stats;
}

BufferPtr PluginClient::buffer_from_host(const void* data, const TensorType& type, int index,
                                         std::shared_ptr<void> keep_alive, Bytes bytes) {
  alignas(64) static const char kNothing[64] = {};
  if (data == nullptr && type.numel() > 0) {
    throw Error("cannot copy " + std::to_string(type.nbytes()) + " bytes from a null pointer");
  }
  const DType dtype = has_doubles() ? type.dtype : without_doubles(type.dtype);
  if (dtype != type.dtype) {
    const auto* wide = static_cast<const double*>(data);
    const auto count = static_cast<size_t>(type.nbytes()) / sizeof(double);
    auto floats = std::make_shared<std::vector<float>>(wide, wide + count);
    data = floats->data();
    keep_alive = std::move(floats);
  }
  auto args = PJRT_ARGS(PJRT_Client_BufferFromHostBuffer);
  args.client = client_;
  args.data = data == nullptr ? kNothing : data;  // of an array without elements
  args.type = buffer_type(dtype);
  args.dims = type.dims.data();
  args.num_dims = type.dims.size();
  args.host_buffer_semantics = !keep_alive ? PJRT_HostBufferSemantics_kImmutableOnlyDuringCall
                               : bytes == Bytes::Given && host_memory()
                                   ? PJRT_HostBufferSemantics_kMutableZeroCopy
                                   : PJRT_HostBufferSemantics_kImmutableZeroCopy;
  args.device = device(index);
  PJRT_CALL(api_, PJRT_Client_BufferFromHostBuffer, args, "copying a tensor to the device");
  auto buffer = std::make_shared<PluginBuffer>(*this, args.buffer, type, index);
  release_when_done(api_, args.done_with_host_buffer, std::move(keep_alive), !host_memory());
  return buffer;
}

ExecutablePtr PluginClient::compile(const std::string& stablehlo, const CompileOptions& options,
                                    std::vector<TensorType> output_types) {
  PJRT_Program program = mlir_program(stablehlo);
  std::string encoded = encode_compile_options(options, platform_name_);
  auto args = PJRT_ARGS(PJRT_Client_Compile);
  args.client = client_;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  PJRT_CALL(api_, PJRT_Client_Compile, args);
  return std::make_shared<PluginExecutable>(*this, args.executable, options,
                                            std::move(output_types));
}

ExecutablePtr PluginClient::deserialize(const std::string& bytes, const CompileOptions& options,
                                        std::vector<TensorType> output_types) {
  std::string encoded = encode_compile_options(options, platform_name_);
  auto args = PJRT_ARGS(PJRT_Executable_DeserializeAndLoad);
  args.client = client_;
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  args.overridden_serialized_compile_options = encoded.data();
  args.overridden_serialized_compile_options_size = encoded.size();
  PJRT_CALL(api_, PJRT_Executable_DeserializeAndLoad, args, "loading a program");
  return std::make_shared<PluginExecutable>(*this, args.loaded_executable, options,
                                            std::move(output_types));
}

bool PluginClient::has_ffi() const {
  // The first plugins with the extension accept a registration and do not find it when compiling.
  constexpr int kFirstWorkingMinor = 100;
  return env::flag("TORCH_XLA_HOST_CALLS") && host_memory() &&
         api_.minor_version() >= kFirstWorkingMinor &&
         api_.find_extension(PJRT_Extension_Type_FFI) != nullptr;
}

void PluginClient::register_ffi_handler(const std::string& name, void* handler) {
  if (!has_ffi()) {
    throw Error("the PJRT plugin " + api_.plugin() +
                " cannot call functions of this process (FFI): use a newer plugin");
  }
  const auto* extension =
      reinterpret_cast<const FfiExtension*>(api_.find_extension(PJRT_Extension_Type_FFI));
  static constexpr std::string_view kPlatform = "Host";
  auto args = make_args<FfiRegisterHandlerArgs>(sizeof(FfiRegisterHandlerArgs));
  args.target_name = name.data();
  args.target_name_size = name.size();
  args.handler = handler;
  args.platform_name = kPlatform.data();
  args.platform_name_size = kPlatform.size();
  refuse_forked_child();
  api_.check(extension->register_handler(&args), "PJRT_FFI_Register_Handler");
}

std::unique_ptr<Profile> PluginClient::start_profile() {
  const auto* extension =
      reinterpret_cast<const ProfilerExtension*>(api_.find_extension(PJRT_Extension_Type_Profiler));
  return extension == nullptr || extension->api == nullptr
             ? nullptr
             : std::make_unique<PluginProfile>(*extension->api, api_.plugin());
}

std::unique_ptr<Client> start_plugin_client(const std::string& path,
                                            const std::string& device_type) {
  // Plugins log to stderr from their start on; what matters to users comes back as an error.
  setenv("TF_CPP_MIN_LOG_LEVEL", "3", /*overwrite=*/0);
  return std::make_unique<PluginClient>(load_plugin(path), device_type);
}

}  // namespace torch_xla::pjrt
