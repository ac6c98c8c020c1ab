#include "pjrt/foreign_plugin.h"

#include "base/env.h"
#include "base/mutex.h"
#include "pjrt/plugin.h"
#include "pjrt/profiler.h"
#include "pjrt/wire.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace torch_xla::pjrt {

namespace {

// An error of ours. The plugin's own are told apart by address.
struct ForeignError {
  PJRT_Error_Code code;
  std::string message;
};

struct Foreign {
  PJRT_Api real;   // the CPU plugin's functions
  PJRT_Api table;  // the same, but for those below
  PJRT_Client* client = nullptr;
  std::vector<PJRT_Device*> devices;  // in our order
  Mutex mutex;
  std::unordered_set<const void*> errors GUARDED_BY(mutex);  // ours
};

Foreign& foreign() {
  static auto* instance = new Foreign;
  return *instance;
}

PJRT_Error* fail(PJRT_Error_Code code, std::string message) {
  auto* error = new ForeignError{code, std::move(message)};
  MutexLock lock(foreign().mutex);
  foreign().errors.insert(error);
  return reinterpret_cast<PJRT_Error*>(error);
}

const ForeignError* ours(const PJRT_Error* error) {
  MutexLock lock(foreign().mutex);
  return foreign().errors.count(error) > 0 ? reinterpret_cast<const ForeignError*>(error) : nullptr;
}

void destroy_error(PJRT_Error_Destroy_Args* args) {
  if (const ForeignError* error = ours(args->error)) {
    {
      MutexLock lock(foreign().mutex);
      foreign().errors.erase(error);
    }
    delete error;
    return;
  }
  foreign().real.PJRT_Error_Destroy(args);
}

void error_message(PJRT_Error_Message_Args* args) {
  if (const ForeignError* error = ours(args->error)) {
    args->message = error->message.data();
    args->message_size = error->message.size();
    return;
  }
  foreign().real.PJRT_Error_Message(args);
}

PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  if (const ForeignError* error = ours(args->error)) {
    args->code = error->code;
    return nullptr;
  }
  return foreign().real.PJRT_Error_GetCode(args);
}

PJRT_Error* create_client(PJRT_Client_Create_Args* args) {
  static constexpr std::string_view kCount = "cpu_device_count";
  std::vector<PJRT_NamedValue> options(args->create_options,
                                       args->create_options + args->num_options);
  auto count = make_args<PJRT_NamedValue>(PJRT_NamedValue_STRUCT_SIZE);
  count.name = kCount.data();
  count.name_size = kCount.size();
  count.type = PJRT_NamedValue_kInt64;
  count.int64_value = env::integer("CPU_NUM_DEVICES");
  count.value_size = 1;
  options.push_back(count);
  args->create_options = options.data();
  args->num_options = options.size();
  PJRT_Error* error = foreign().real.PJRT_Client_Create(args);
  foreign().client = args->client;
  return error;
}

PJRT_Error* platform_name(PJRT_Client_PlatformName_Args* args) {
  static constexpr std::string_view kName = "foreign";
  args->platform_name = kName.data();
  args->platform_name_size = kName.size();
  return nullptr;
}

PJRT_Error* addressable_devices(PJRT_Client_AddressableDevices_Args* args) {
  PJRT_Error* error = foreign().real.PJRT_Client_AddressableDevices(args);
  if (error == nullptr) {
    foreign().devices.assign(args->addressable_devices,
                             args->addressable_devices + args->num_addressable_devices);
    std::reverse(foreign().devices.begin(), foreign().devices.end());
    args->addressable_devices = foreign().devices.data();
  }
  return error;
}

PJRT_Error* device_id(PJRT_DeviceDescription_Id_Args* args) {
  PJRT_Error* error = foreign().real.PJRT_DeviceDescription_Id(args);
  args->id = 3 * args->id + 5;
  return error;
}

PJRT_Error* memory_stats(PJRT_Device_MemoryStats_Args*) {
  return fail(PJRT_Error_Code_UNIMPLEMENTED, "a foreign device does not count its memory");
}

PJRT_Error* unsafe_pointer(PJRT_Buffer_UnsafePointer_Args*) {
  return fail(PJRT_Error_Code_UNIMPLEMENTED, "a foreign device's memory has no address here");
}

PJRT_Error* buffer_from_host(PJRT_Client_BufferFromHostBuffer_Args* args) {
  if (args->type == PJRT_Buffer_Type_F64 || args->type == PJRT_Buffer_Type_C128) {
    return fail(PJRT_Error_Code_UNIMPLEMENTED, "a foreign device knows no f64");
  }
  if (args->host_buffer_semantics != PJRT_HostBufferSemantics_kImmutableOnlyDuringCall) {
    args->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  }
  return foreign().real.PJRT_Client_BufferFromHostBuffer(args);
}

PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  const std::string_view code(args->program->code, args->program->code_size);
  if (code.find("xf64>") != code.npos || code.find("<f64>") != code.npos) {
    return fail(PJRT_Error_Code_UNIMPLEMENTED, "a foreign device knows no f64");
  }
  return foreign().real.PJRT_Client_Compile(args);
}

// A result that fails instead of becoming ready.
PJRT_Buffer* failed_buffer(PJRT_Device* device, PJRT_Buffer_Type type, const int64_t* dims,
                           size_t num_dims, PJRT_Error_Code code, std::string_view message) {
  const Api plugin(&foreign().real, "FOREIGN");
  auto memory = PJRT_ARGS(PJRT_Device_DefaultMemory);
  memory.device = device;
  PJRT_CALL(plugin, PJRT_Device_DefaultMemory, memory);
  auto promise = PJRT_ARGS(PJRT_Client_CreateAliasBuffer);
  promise.client = foreign().client;
  promise.memory = memory.memory;
  promise.shape_dims = dims;
  promise.shape_num_dims = num_dims;
  promise.shape_element_type = type;
  PJRT_CALL(plugin, PJRT_Client_CreateAliasBuffer, promise);
  auto failure = PJRT_ARGS(PJRT_Client_FulfillAliasBuffer);
  failure.client = foreign().client;
  failure.status_code = code;
  failure.error_message = message.data();
  failure.error_message_size = message.size();
  failure.fulfill_alias_buffer_cb = promise.fulfill_alias_buffer_cb;
  // Answers with the error that it has put into the buffer.
  plugin.discard(plugin.table().PJRT_Client_FulfillAliasBuffer(&failure));
  return promise.alias_buffer;
}

void delete_donated(const PJRT_LoadedExecutable_Execute_Args& args, size_t lane) {
  const Api plugin(&foreign().real, "FOREIGN");
  const int64_t* kept = args.options->non_donatable_input_indices;
  const int64_t* kept_end = kept + args.options->num_non_donatable_input_indices;
  for (size_t i = 0; i < args.num_args; ++i) {
    if (std::find(kept, kept_end, static_cast<int64_t>(i)) == kept_end) {
      auto gone = PJRT_ARGS(PJRT_Buffer_Delete);
      gone.buffer = args.argument_lists[lane][i];
      PJRT_CALL(plugin, PJRT_Buffer_Delete, gone);
    }
  }
}

// As an asynchronous device's: whoever waits for the results hears of it, and the donated inputs
// are gone.
void fail_late(const PJRT_LoadedExecutable_Execute_Args& args, PJRT_Error_Code code,
               std::string_view message) {
  const Api plugin(&foreign().real, "FOREIGN");
  auto executable = PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable);
  executable.loaded_executable = args.executable;
  PJRT_CALL(plugin, PJRT_LoadedExecutable_GetExecutable, executable);
  auto types = PJRT_ARGS(PJRT_Executable_OutputElementTypes);
  types.executable = executable.executable;
  PJRT_CALL(plugin, PJRT_Executable_OutputElementTypes, types);
  auto dims = PJRT_ARGS(PJRT_Executable_OutputDimensions);
  dims.executable = executable.executable;
  PJRT_CALL(plugin, PJRT_Executable_OutputDimensions, dims);
  auto devices = PJRT_ARGS(PJRT_LoadedExecutable_AddressableDevices);
  devices.executable = args.executable;
  PJRT_CALL(plugin, PJRT_LoadedExecutable_AddressableDevices, devices);
  for (size_t lane = 0; lane < args.num_devices; ++lane) {
    PJRT_Device* device =
        args.execute_device != nullptr ? args.execute_device : devices.addressable_devices[lane];
    const int64_t* sizes = dims.dims;
    for (size_t i = 0; i < types.num_output_types; ++i) {
      args.output_lists[lane][i] =
          failed_buffer(device, types.output_types[i], sizes, dims.dim_sizes[i], code, message);
      sizes += dims.dim_sizes[i];
    }
    if (args.device_complete_events != nullptr) {
      auto ready = PJRT_ARGS(PJRT_Buffer_ReadyEvent);
      ready.buffer = args.output_lists[lane][0];
      PJRT_CALL(plugin, PJRT_Buffer_ReadyEvent, ready);
      args.device_complete_events[lane] = ready.event;
    }
    delete_donated(args, lane);
  }
  auto done = PJRT_ARGS(PJRT_Executable_Destroy);
  done.executable = executable.executable;
  PJRT_CALL(plugin, PJRT_Executable_Destroy, done);
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  const PJRT_Api& real = foreign().real;
  PJRT_Error* error = real.PJRT_LoadedExecutable_Execute(args);
  if (error == nullptr) {
    return nullptr;
  }
  auto code = PJRT_ARGS(PJRT_Error_GetCode);
  code.error = error;
  real.PJRT_Error_GetCode(&code);
  if (code.code == PJRT_Error_Code_INVALID_ARGUMENT) {
    return error;  // a mistake of the caller's is found at the launch
  }
  auto text = PJRT_ARGS(PJRT_Error_Message);
  text.error = error;
  real.PJRT_Error_Message(&text);
  fail_late(*args, code.code, {text.message, text.message_size});
  Api(&real, "FOREIGN").discard(error);
  return nullptr;
}

// A profile: whether it is being recorded.
bool& recording(PluginProfiler* profiler) { return *reinterpret_cast<bool*>(profiler); }

PluginProfilerError* create_profiler(ProfilerCreateArgs* args) {
  args->profiler = reinterpret_cast<PluginProfiler*>(new bool(false));
  return nullptr;
}

PluginProfilerError* destroy_profiler(ProfilerArgs* args) {
  delete &recording(args->profiler);
  return nullptr;
}

PluginProfilerError* refuse_profile(const char* why) {
  return reinterpret_cast<PluginProfilerError*>(new std::string(why));
}

PluginProfilerError* start_profiler(ProfilerArgs* args) {
  recording(args->profiler) = true;
  return nullptr;
}

PluginProfilerError* stop_profiler(ProfilerArgs* args) {
  return std::exchange(recording(args->profiler), false) ? nullptr
                                                         : refuse_profile("it was not started");
}

// An XSpace of one plane, which has a name only.
PluginProfilerError* collect_profile(ProfilerDataArgs* args) {
  constexpr int kPlanes = 1, kName = 2;  // fields
  std::string plane, space;
  wire::write_bytes(plane, kName, "/device:FOREIGN:0");
  wire::write_bytes(space, kPlanes, plane);
  if (args->buffer != nullptr) {
    std::memcpy(args->buffer, space.data(), space.size());
  }
  args->buffer_size = space.size();
  return nullptr;
}

void destroy_profiler_error(ProfilerErrorArgs* args) {
  delete reinterpret_cast<std::string*>(args->error);
}

void profiler_message(ProfilerMessageArgs* args) {
  const auto* message = reinterpret_cast<const std::string*>(args->error);
  args->message = message->data();
  args->message_size = message->size();
}

ProfilerExtension* profiler_extension() {
  static ProfilerApi api{sizeof(ProfilerApi), nullptr,         &destroy_profiler_error,
                         &profiler_message,   nullptr,         &create_profiler,
                         &destroy_profiler,   &start_profiler, &stop_profiler,
                         &collect_profile};
  static ProfilerExtension extension{
      {sizeof(ProfilerExtension), PJRT_Extension_Type_Profiler, nullptr}, &api, -1};
  return &extension;
}

}  // namespace

Api load_foreign(const std::string& path) {
  const Api cpu = load_plugin(path);
  Foreign& f = foreign();
  const size_t size = std::min(sizeof(PJRT_Api), cpu.table().struct_size);
  std::memset(&f.real, 0, sizeof(f.real));
  std::memcpy(&f.real, &cpu.table(), size);
  f.real.struct_size = size;
  f.real.extension_start = &profiler_extension()->base;
  f.table = f.real;
  f.table.PJRT_Error_Destroy = &destroy_error;
  f.table.PJRT_Error_Message = &error_message;
  f.table.PJRT_Error_GetCode = &error_code;
  f.table.PJRT_Client_Create = &create_client;
  f.table.PJRT_Client_PlatformName = &platform_name;
  f.table.PJRT_Client_AddressableDevices = &addressable_devices;
  f.table.PJRT_Client_BufferFromHostBuffer = &buffer_from_host;
  f.table.PJRT_Client_Compile = &compile;
  f.table.PJRT_DeviceDescription_Id = &device_id;
  f.table.PJRT_Device_MemoryStats = &memory_stats;
  f.table.PJRT_Buffer_UnsafePointer = &unsafe_pointer;
  f.table.PJRT_LoadedExecutable_Execute = &execute;
  return {&f.table, path};
}

}  // namespace torch_xla::pjrt
