#include "pjrt/machine.h"

#include <filesystem>
#include <fstream>

namespace torch_xla::pjrt {

std::string cpu_features() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.starts_with("flags") || line.starts_with("Features")) {
      return line;
    }
  }
  return "";
}

std::string file_identity(const std::string& path) {
  std::error_code error;
  auto size = std::filesystem::file_size(path, error);
  return error ? "" : std::to_string(size) + " bytes";
}

}  // namespace torch_xla::pjrt
