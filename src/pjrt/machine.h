// What compiled programs depend on besides their text. Stateless.
#pragma once

#include <string>

namespace torch_xla::pjrt {

// The processor's instruction sets: a program compiled for others may not run here.
std::string cpu_features();

// Tells builds of a library apart that give the same version. Empty if the file cannot be read.
std::string file_identity(const std::string& path);

}  // namespace torch_xla::pjrt
