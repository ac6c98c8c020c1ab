// The store of several processes (pjrt/processes.h) as the callbacks a plugin's client asks for.
#pragma once

#include "pjrt/api.h"

namespace torch_xla::pjrt {

void set_key_value_callbacks(PJRT_Client_Create_Args& args);

}  // namespace torch_xla::pjrt
