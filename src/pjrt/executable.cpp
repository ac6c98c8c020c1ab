#include "pjrt/hlo_text.h"
#include "pjrt/plugin_client.h"

namespace torch_xla::pjrt {

PluginExecutable::PluginExecutable(PluginClient& client, PJRT_LoadedExecutable* executable,
                                   std::vector<TensorType> output_types)
    : client_(client), loaded_(executable), output_types_(std::move(output_types)) {
  try {
    auto args = PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable);
    args.loaded_executable = loaded_;
    PJRT_CALL(client_.api(), PJRT_LoadedExecutable_GetExecutable, args);
    executable_ = args.executable;
    check_output_count();
  } catch (...) {
    release();
    throw;
  }
}

PluginExecutable::~PluginExecutable() { release(); }

void PluginExecutable::release() noexcept {
  if (in_forked_child) {
    return;  // the parent's
  }
  const Api& api = client_.api();
  if (executable_ != nullptr) {
    auto args = PJRT_ARGS(PJRT_Executable_Destroy);
    args.executable = executable_;
    api.discard(api.table().PJRT_Executable_Destroy(&args));
  }
  auto args = PJRT_ARGS(PJRT_LoadedExecutable_Destroy);
  args.executable = loaded_;
  api.discard(api.table().PJRT_LoadedExecutable_Destroy(&args));
}

void PluginExecutable::check_output_count() {
  auto args = PJRT_ARGS(PJRT_Executable_NumOutputs);
  args.executable = executable_;
  PJRT_CALL(client_.api(), PJRT_Executable_NumOutputs, args);
  if (args.num_outputs != output_types_.size()) {
    throw Error("the program has " + std::to_string(args.num_outputs) + " outputs, expected " +
                std::to_string(output_types_.size()));
  }
}

namespace {

class PluginCompletion final : public Completion {
 public:
  PluginCompletion(const Api& api, PJRT_Event* event) : event_(api, event) {}
  bool is_ready() override { return event_.is_ready(); }
  void await() override { event_.await("running a program"); }

 private:
  Event event_;
};

}  // namespace

// No event and no query per output: whoever reads a buffer asks for its event.
std::vector<BufferPtr> PluginExecutable::execute(const std::vector<Buffer*>& inputs,
                                                 const std::vector<bool>& donated, int device,
                                                 CompletionPtr* completion) {
  std::vector<PJRT_Buffer*> arguments;
  std::vector<int64_t> kept;
  arguments.reserve(inputs.size());
  kept.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto* buffer = static_cast<PluginBuffer*>(inputs[i]);
    if (buffer->is_deleted()) {
      throw Error("input " + std::to_string(i) +
                  " of a program was donated to one that has run: its value is gone");
    }
    arguments.push_back(buffer->raw());
    if (!donated[i]) {
      kept.push_back(static_cast<int64_t>(i));
    }
  }
  std::vector<PJRT_Buffer*> outputs(output_types_.size(), nullptr);
  PJRT_Buffer* const* argument_list = arguments.data();
  PJRT_Buffer** output_list = outputs.data();

  auto options = make_args<PJRT_ExecuteOptions>(PJRT_ExecuteOptions_STRUCT_SIZE);
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
  PJRT_Event* done = nullptr;
  args.device_complete_events = completion != nullptr ? &done : nullptr;
  try {
    PJRT_CALL(client_.api(), PJRT_LoadedExecutable_Execute, args);
  } catch (...) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (donated[i]) {
        static_cast<PluginBuffer*>(inputs[i])->mark_deleted_if_taken();
      }
    }
    throw;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (donated[i]) {
      static_cast<PluginBuffer*>(inputs[i])->mark_deleted();
    }
  }
  if (done != nullptr) {
    *completion = std::make_shared<PluginCompletion>(client_.api(), done);
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
  PJRT_CALL(client_.api(), PJRT_Executable_Serialize, args, "serialising a program");
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

std::string PluginExecutable::optimized_hlo() {
  auto program = make_args<PJRT_Program>(PJRT_Program_STRUCT_SIZE);
  auto args = PJRT_ARGS(PJRT_Executable_OptimizedProgram);
  args.executable = executable_;
  args.program = &program;
  PJRT_CALL(client_.api(), PJRT_Executable_OptimizedProgram, args);  // its size
  std::string code(program.code_size, '\0');
  program.code = code.data();
  PJRT_CALL(client_.api(), PJRT_Executable_OptimizedProgram, args);
  std::string_view format(program.format, program.format_size);
  if (format == "hlo") {
    return hlo_text(code);
  }
  return format == "hlo_with_config" ? hlo_text(hlo_of_hlo_with_config(code)) : code;
}

}  // namespace torch_xla::pjrt
