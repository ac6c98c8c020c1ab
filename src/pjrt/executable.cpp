#include "base/error.h"
#include "base/pool.h"
#include "pjrt/analysis.h"
#include "pjrt/hlo_sharding.h"
#include "pjrt/hlo_text.h"
#include "pjrt/live_buffers.h"
#include "pjrt/plugin_client.h"
#include "pjrt/sharded_buffer.h"

#include <algorithm>
#include <atomic>

namespace torch_xla::pjrt {

namespace {

thread_local bool this_thread_launches = false;

struct Launching {
  Launching() { this_thread_launches = true; }
  ~Launching() { this_thread_launches = false; }
  Launching(const Launching&) = delete;
  Launching& operator=(const Launching&) = delete;
};

}  // namespace

bool is_launching() { return this_thread_launches; }

PluginExecutable::PluginExecutable(PluginClient& client, PJRT_LoadedExecutable* executable,
                                   const CompileOptions& options,
                                   std::vector<TensorType> output_types)
    : client_(client),
      loaded_(executable),
      output_types_(std::move(output_types)),
      partitioned_(options.partitions > 1) {
  try {
    auto args = PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable);
    args.loaded_executable = loaded_;
    PJRT_CALL(client_.api(), PJRT_LoadedExecutable_GetExecutable, args);
    executable_ = args.executable;
    check_output_count();
    if (client_.host_memory()) {
      temporaries_ = ask_for_temporaries();
    }
    if (partitioned_) {
      auto [format, bytes] = optimized_program();
      output_shardings_ = result_shardings(
          format == "hlo_with_config" ? hlo_of_hlo_with_config(bytes) : std::string_view(bytes),
          output_types_.size());
      for (size_t i = 0; i < output_types_.size(); ++i) {
        piece_types_.push_back(
            {output_types_[i].dtype, output_shardings_[i]->shard_dims(output_types_[i].dims)});
      }
    }
  } catch (...) {
    release();
    throw;
  }
}

PluginExecutable::~PluginExecutable() { release(); }

const Api& PluginExecutable::api() const { return client_.api(); }

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

int64_t PluginExecutable::ask_for_temporaries() {
  try {
    return memory_use(*this).temporaries;
  } catch (const Error&) {
    return 0;  // the plugin does not know
  }
}

namespace {

class PluginCompletion final : public Completion {
 public:
  PluginCompletion(const Api& api, const std::vector<PJRT_Event*>& events) {
    for (PJRT_Event* event : events) {
      events_.push_back(std::make_shared<Event>(api, event));
    }
  }
  bool is_ready() override {
    if (!ready_.load(std::memory_order_acquire)) {
      ready_ = std::all_of(events_.begin(), events_.end(),
                           [](const EventPtr& e) { return e->is_ready(); });
    }
    return ready_;
  }
  void await() override {
    for (const EventPtr& event : events_) {
      await_or_interrupt(event, "running a program");
    }
    ready_ = true;
  }

 private:
  std::vector<EventPtr> events_;  // one a device
  std::atomic<bool> ready_{false};
};

// What device `lane` of a launch holds of an input.
PluginBuffer& piece_of(Buffer& input, size_t lane) {
  Buffer& piece =
      input.sharding() == nullptr ? input : *static_cast<ShardedBuffer&>(input).pieces()[lane];
  return static_cast<PluginBuffer&>(piece);
}

}  // namespace

// No event and no query per output: whoever reads a buffer asks for its event.
std::vector<BufferPtr> PluginExecutable::execute(const std::vector<Buffer*>& inputs,
                                                 const std::vector<bool>& donated, int device,
                                                 CompletionPtr* completion) {
  const size_t lanes = partitioned_ ? static_cast<size_t>(client_.device_count()) : 1;
  std::vector<PJRT_Buffer*> arguments(lanes * inputs.size());
  std::vector<int64_t> kept;
  kept.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]->is_deleted()) {
      throw Error("input " + std::to_string(i) +
                  " of a program was donated to one that has run: its value is gone");
    }
    for (size_t lane = 0; lane < lanes; ++lane) {
      arguments[lane * inputs.size() + i] = piece_of(*inputs[i], lane).raw();
    }
    if (!donated[i]) {
      kept.push_back(static_cast<int64_t>(i));
    }
  }
  std::vector<PJRT_Buffer*> outputs(lanes * output_types_.size(), nullptr);
  std::vector<PJRT_Buffer* const*> argument_lists;
  std::vector<PJRT_Buffer**> output_lists;
  for (size_t lane = 0; lane < lanes; ++lane) {
    argument_lists.push_back(arguments.data() + lane * inputs.size());
    output_lists.push_back(outputs.data() + lane * output_types_.size());
  }

  auto options = make_args<PJRT_ExecuteOptions>(PJRT_ExecuteOptions_STRUCT_SIZE);
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  auto args = PJRT_ARGS(PJRT_LoadedExecutable_Execute);
  args.executable = loaded_;
  args.options = &options;
  args.argument_lists = argument_lists.data();
  args.num_devices = lanes;
  args.num_args = inputs.size();
  args.output_lists = output_lists.data();
  args.execute_device = partitioned_ ? nullptr : client_.device(device);
  std::vector<PJRT_Event*> done(lanes, nullptr);
  args.device_complete_events = completion != nullptr ? done.data() : nullptr;
  auto for_donated = [&](void (PluginBuffer::*action)()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t lane = 0; donated[i] && lane < lanes; ++lane) {
        (piece_of(*inputs[i], lane).*action)();
      }
    }
  };
  try {
    Launching launching;
    PJRT_CALL(client_.api(), PJRT_LoadedExecutable_Execute, args);
  } catch (...) {
    for_donated(&PluginBuffer::mark_deleted_if_taken);
    throw;
  }
  for_donated(&PluginBuffer::mark_deleted);
  if (done.front() != nullptr) {
    *completion = std::make_shared<PluginCompletion>(client_.api(), done);
  }
  std::vector<BufferPtr> results = wrap(outputs, device);
  for (size_t lane = 0; lane < lanes; ++lane) {
    device_memory(partitioned_ ? static_cast<int>(lane) : device).note_peak(temporaries_);
  }
  return results;
}

std::vector<BufferPtr> PluginExecutable::wrap(const std::vector<PJRT_Buffer*>& raw, int device) {
  const size_t count = output_types_.size();
  std::vector<BufferPtr> results;
  results.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (!partitioned_) {
      results.push_back(make_pooled<PluginBuffer>(client_, raw[i], output_types_[i], device));
      continue;
    }
    std::vector<BufferPtr> pieces;
    pieces.reserve(raw.size() / count);
    for (size_t lane = 0; lane < raw.size() / count; ++lane) {
      pieces.push_back(make_pooled<PluginBuffer>(client_, raw[lane * count + i], piece_types_[i],
                                                 static_cast<int>(lane)));
    }
    results.push_back(
        std::make_shared<ShardedBuffer>(output_types_[i], output_shardings_[i], std::move(pieces)));
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

std::pair<std::string, std::string> PluginExecutable::optimized_program() {
  auto program = make_args<PJRT_Program>(PJRT_Program_STRUCT_SIZE);
  auto args = PJRT_ARGS(PJRT_Executable_OptimizedProgram);
  args.executable = executable_;
  args.program = &program;
  PJRT_CALL(client_.api(), PJRT_Executable_OptimizedProgram, args);  // its size
  std::string code(program.code_size, '\0');
  program.code = code.data();
  PJRT_CALL(client_.api(), PJRT_Executable_OptimizedProgram, args);
  return {std::string(program.format, program.format_size), std::move(code)};
}

std::string PluginExecutable::optimized_hlo() {
  auto [format, code] = optimized_program();
  if (format == "hlo") {
    return hlo_text(code);
  }
  return format == "hlo_with_config" ? hlo_text(hlo_of_hlo_with_config(code)) : code;
}

}  // namespace torch_xla::pjrt
