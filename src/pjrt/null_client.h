// A client that computes nothing: programs yield zeros. For tests of recording. Thread-safe.
#pragma once

#include "pjrt/client.h"

namespace torch_xla::pjrt {

std::unique_ptr<Client> make_null_client(int device_count);

}  // namespace torch_xla::pjrt
