// The profiler extension of the PJRT C API. It is not in the header that the plugin's package
// ships, so its layout is declared here.
#pragma once

#include "pjrt/api.h"
#include "pjrt/client.h"

namespace torch_xla::pjrt {

struct PluginProfiler;       // the plugin's
struct PluginProfilerError;  // the plugin's

struct ProfilerErrorArgs {
  size_t struct_size;
  void* priv;
  PluginProfilerError* error;
};

struct ProfilerMessageArgs {
  size_t struct_size;
  void* priv;
  const PluginProfilerError* error;
  const char* message;
  size_t message_size;
};

struct ProfilerCreateArgs {
  size_t struct_size;
  const char* options;  // a ProfileOptions, serialised
  size_t options_size;
  PluginProfiler* profiler;
};

struct ProfilerArgs {
  size_t struct_size;
  PluginProfiler* profiler;
};

// Called with a null buffer for the size; some plugins hand out a buffer of their own then.
struct ProfilerDataArgs {
  size_t struct_size;
  PluginProfiler* profiler;
  uint8_t* buffer;
  size_t buffer_size;
};

struct ProfilerApi {
  size_t struct_size;
  void* priv;
  void (*error_destroy)(ProfilerErrorArgs*);
  void (*error_message)(ProfilerMessageArgs*);
  void* error_code;
  PluginProfilerError* (*create)(ProfilerCreateArgs*);
  PluginProfilerError* (*destroy)(ProfilerArgs*);
  PluginProfilerError* (*start)(ProfilerArgs*);
  PluginProfilerError* (*stop)(ProfilerArgs*);
  PluginProfilerError* (*collect)(ProfilerDataArgs*);
};

struct ProfilerExtension {
  PJRT_Extension_Base base;
  ProfilerApi* api;
  int64_t traceme_context_id;
};

class PluginProfile final : public Profile {
 public:
  // `api` outlives it; `plugin` names it in messages.
  PluginProfile(const ProfilerApi& api, std::string plugin);
  ~PluginProfile() override;
  PluginProfile(const PluginProfile&) = delete;
  PluginProfile& operator=(const PluginProfile&) = delete;

  std::string stop() override;

 private:
  void check(PluginProfilerError* error, const char* doing) const;
  void forget(PluginProfilerError* error) const noexcept;

  const ProfilerApi& api_;
  const std::string plugin_;
  PluginProfiler* profiler_ = nullptr;
};

}  // namespace torch_xla::pjrt
