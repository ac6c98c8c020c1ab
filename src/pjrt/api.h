// Calls into a plugin: every error becomes an exception that names the call and the plugin.
#pragma once

#include "base/error.h"
#include "ir/types.h"

#include <cstring>
#include <string>

#include "pjrt_c_api.h"

namespace torch_xla::pjrt {

// Zero-initialised arguments of a call, with the size this build knows.
template <typename Args>
Args make_args(size_t struct_size) {
  Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = struct_size;
  return args;
}

#define PJRT_ARGS(Name) make_args<Name##_Args>(Name##_Args_STRUCT_SIZE)

// Throws if `error` is set; `doing` says what was attempted: "compiling step_fn".
void check(const PJRT_Api* api, PJRT_Error* error, const char* call, const std::string& doing = "");

// api->Name(&args), checked.
#define PJRT_CALL(api, Name, args) \
  ::torch_xla::pjrt::check(api, (api)->Name(&(args)), #Name)

// Blocks, destroys the event, throws its error.
void await_event(const PJRT_Api* api, PJRT_Event* event, const char* call);

PJRT_Buffer_Type buffer_type(DType dtype);

}  // namespace torch_xla::pjrt
