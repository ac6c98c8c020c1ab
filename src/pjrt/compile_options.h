// CompileOptionsProto, encoded by hand: the only protobuf message we send. Stateless.
#pragma once

#include "pjrt/client.h"

#include <string>
#include <string_view>

namespace torch_xla::pjrt {

// `platform`: Client::platform_name(), for what a platform must be asked for.
std::string encode_compile_options(const CompileOptions& options, std::string_view platform);

}  // namespace torch_xla::pjrt
