// What the compiler says of a program. Thread-safe.
#pragma once

#include "pjrt/client.h"

#include <map>
#include <string>
#include <vector>

namespace torch_xla::pjrt {

// "flops", "bytes accessed", "bytes accessed output" and others, by XLA's names. Throws where the
// plugin does not say.
std::map<std::string, double> cost_analysis(Executable& executable);

// Bytes on the device, then on the host for it.
struct MemoryUse {
  int64_t generated_code = 0, arguments = 0, outputs = 0, aliases = 0, temporaries = 0, peak = 0;
  int64_t host_generated_code = 0, host_arguments = 0, host_outputs = 0, host_aliases = 0,
          host_temporaries = 0;
};
MemoryUse memory_use(Executable& executable);

}  // namespace torch_xla::pjrt
