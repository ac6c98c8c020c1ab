// CompileOptionsProto, encoded by hand: the only protobuf message we send. Stateless.
#pragma once

#include "pjrt/client.h"

#include <string>

namespace torch_xla::pjrt {

std::string encode_compile_options(const CompileOptions& options);

}  // namespace torch_xla::pjrt
