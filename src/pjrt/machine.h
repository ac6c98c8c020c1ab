// What compiled programs depend on besides their text: the processor and the kernel's limits.
// Stateless.
#pragma once

#include <cstddef>
#include <string>

namespace torch_xla::pjrt {

// The processor's instruction sets: a program compiled for others may not run here.
std::string cpu_features();

// Memory mappings of this process, and how many the kernel allows it; 0 if that is not known.
size_t mapping_count();
size_t mapping_limit();

}  // namespace torch_xla::pjrt
