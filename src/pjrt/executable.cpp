#include "pjrt/plugin_client.h"

namespace torch_xla::pjrt {

PluginExecutable::PluginExecutable(PluginClient& client, PJRT_LoadedExecutable* executable,
                                   std::vector<TensorType> output_types)
    : client_(client), loaded_(executable), output_types_(std::move(output_types)) {
  auto args = PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable);
  args.loaded_executable = loaded_;
  PJRT_CALL(client_.api(), PJRT_LoadedExecutable_GetExecutable, args);
  executable_ = args.executable;
  auto count = PJRT_ARGS(PJRT_Executable_NumOutputs);
  count.executable = executable_;
  PJRT_CALL(client_.api(), PJRT_Executable_NumOutputs, count);
  if (count.num_outputs != output_types_.size()) {
    throw Error("the program has " + std::to_string(count.num_outputs) + " outputs, expected " +
                std::to_string(output_types_.size()));
  }
}

PluginExecutable::~PluginExecutable() {
  auto executable = PJRT_ARGS(PJRT_Executable_Destroy);
  executable.executable = executable_;
  client_.api()->PJRT_Executable_Destroy(&executable);
  auto loaded = PJRT_ARGS(PJRT_LoadedExecutable_Destroy);
  loaded.executable = loaded_;
  client_.api()->PJRT_LoadedExecutable_Destroy(&loaded);
}

std::vector<BufferPtr> PluginExecutable::execute(const std::vector<Buffer*>& inputs,
                                                 const std::vector<bool>& donated, int device) {
  c10::SmallVector<PJRT_Buffer*, 32> arguments;
  c10::SmallVector<int64_t, 32> kept;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto* buffer = static_cast<PluginBuffer*>(inputs[i]);
    if (buffer->is_deleted()) {
      throw Error("input " + std::to_string(i) + " was donated to a program that has run");
    }
    arguments.push_back(buffer->raw());
    if (!donated[i]) {
      kept.push_back(static_cast<int64_t>(i));
    }
  }
  c10::SmallVector<PJRT_Buffer*, 32> outputs(output_types_.size(), nullptr);
  PJRT_Buffer* const* argument_list = arguments.data();
  PJRT_Buffer** output_list = outputs.data();

  PJRT_ExecuteOptions options;
  std::memset(&options, 0, sizeof(options));
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();

  auto args = PJRT_ARGS(PJRT_LoadedExecutable_Execute);
  args.executable = loaded_;
  args.options = &options;
  args.argument_lists = &argument_list;
  args.num_devices = 1;
  args.num_args = arguments.size();
  args.output_lists = &output_list;
  args.execute_device = client_.device(device);
  PJRT_CALL(client_.api(), PJRT_LoadedExecutable_Execute, args);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (donated[i]) {
      static_cast<PluginBuffer*>(inputs[i])->mark_deleted();
    }
  }
  std::vector<BufferPtr> results;
  results.reserve(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(
        std::make_shared<PluginBuffer>(client_, outputs[i], output_types_[i], device));
  }
  return results;
}

std::string PluginExecutable::serialize() {
  auto args = PJRT_ARGS(PJRT_Executable_Serialize);
  args.executable = executable_;
  PJRT_CALL(client_.api(), PJRT_Executable_Serialize, args);
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

std::string PluginExecutable::optimized_hlo() {
  PJRT_Program program;
  std::memset(&program, 0, sizeof(program));
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  auto args = PJRT_ARGS(PJRT_Executable_OptimizedProgram);
  args.executable = executable_;
  args.program = &program;
  PJRT_CALL(client_.api(), PJRT_Executable_OptimizedProgram, args);
  std::string code(program.code_size, '\0');
  program.code = code.data();
  PJRT_CALL(client_.api(), PJRT_Executable_OptimizedProgram, args);
  return code;
}

}  // namespace torch_xla::pjrt
