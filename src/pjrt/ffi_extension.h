// The FFI extension of the PJRT C API. It is not in the header that the plugin's package ships, so
// its layout is declared here. Plain data.
#pragma once

#include "pjrt_c_api.h"

#include <cstddef>

namespace torch_xla::pjrt {

struct FfiRegisterHandlerArgs {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;  // XLA_FFI_Handler*
  const char* platform_name;
  size_t platform_name_size;
  int traits;
};
// Up to the end of the last member, without tail padding: how PJRT counts.
constexpr size_t kFfiRegisterHandlerArgsSize =
    offsetof(FfiRegisterHandlerArgs, traits) + sizeof(FfiRegisterHandlerArgs::traits);

struct FfiExtension {
  PJRT_Extension_Base base;
  void* type_id_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(FfiRegisterHandlerArgs*);
};

}  // namespace torch_xla::pjrt
