#include "pjrt/machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

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

size_t mapping_count() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

size_t mapping_limit() {
  std::ifstream file("/proc/sys/vm/max_map_count");
  size_t limit = 0;
  file >> limit;
  return file ? limit : 0;
}

}  // namespace torch_xla::pjrt
