// What compiled programs depend on besides their text: processor, libraries, the kernel's limits.
// Stateless.
#pragma once

#include <cstddef>
#include <string>

namespace torch_xla::pjrt {

// The processor's instruction sets: a program compiled for others may not run here.
std::string cpu_features();

// Tells builds of a library apart that give the same version. Empty if the file cannot be read.
std::string file_identity(const std::string& path);

// Memory mappings of this process, and how many the kernel allows it; 0 if that is not known.
size_t mapping_count();
size_t mapping_limit();

}  // namespace torch_xla::pjrt
