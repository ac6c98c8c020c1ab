#include "pjrt/profiler.h"

#include "pjrt/wire.h"

namespace torch_xla::pjrt {

namespace {

// Devices' operators with their programs, and what the plugin does on the host.
std::string options() {
  constexpr int kHostLevel = 2, kDeviceLevel = 3, kVersion = 5, kPrograms = 7;  // fields
  std::string text;
  wire::write_integer(text, kHostLevel, 2);
  wire::write_integer(text, kDeviceLevel, 1);
  wire::write_integer(text, kVersion, 1);
  wire::write_integer(text, kPrograms, 1);
  return text;
}

ProfilerArgs args_of(PluginProfiler* profiler) {
  auto args = make_args<ProfilerArgs>(sizeof(ProfilerArgs));
  args.profiler = profiler;
  return args;
}

}  // namespace

PluginProfile::PluginProfile(const ProfilerApi& api, std::string plugin)
    : api_(api), plugin_(std::move(plugin)) {
  refuse_forked_child();
  const std::string given = options();
  auto create = make_args<ProfilerCreateArgs>(sizeof(ProfilerCreateArgs));
  create.options = given.data();
  create.options_size = given.size();
  check(api_.create(&create), "making a profiler");
  profiler_ = create.profiler;
  ProfilerArgs args = args_of(profiler_);
  try {
    check(api_.start(&args), "starting a profile");
  } catch (const Error&) {
    forget(api_.destroy(&args));
    throw;
  }
}

PluginProfile::~PluginProfile() {
  ProfilerArgs args = args_of(profiler_);
  if (!in_forked_child) {
    forget(api_.destroy(&args));
  }
}

std::string PluginProfile::stop() {
  refuse_forked_child();
  ProfilerArgs args = args_of(profiler_);
  check(api_.stop(&args), "stopping a profile");
  auto data = make_args<ProfilerDataArgs>(sizeof(ProfilerDataArgs));
  data.profiler = profiler_;
  check(api_.collect(&data), "reading a profile");
  if (data.buffer != nullptr) {
    return {reinterpret_cast<const char*>(data.buffer), data.buffer_size};
  }
  std::string bytes(data.buffer_size, '\0');
  data.buffer = reinterpret_cast<uint8_t*>(bytes.data());
  check(api_.collect(&data), "reading a profile");
  return bytes;
}

void PluginProfile::check(PluginProfilerError* error, const char* doing) const {
  if (error == nullptr) {
    return;
  }
  auto text = make_args<ProfilerMessageArgs>(sizeof(ProfilerMessageArgs));
  text.priv = api_.priv;
  text.error = error;
  api_.error_message(&text);
  const std::string message(text.message, text.message_size);
  forget(error);
  throw Error(std::string(doing) + ": " + message + " [plugin " + plugin_ + "]");
}

void PluginProfile::forget(PluginProfilerError* error) const noexcept {
  if (error != nullptr) {
    auto args = make_args<ProfilerErrorArgs>(sizeof(ProfilerErrorArgs));
    args.priv = api_.priv;
    args.error = error;
    api_.error_destroy(&args);
  }
}

}  // namespace torch_xla::pjrt
