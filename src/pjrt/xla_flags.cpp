#include "pjrt/xla_flags.h"

#include "base/error.h"

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace torch_xla::pjrt {

namespace {

// "xla_dump_to" of "--xla_dump_to=/tmp".
std::string name_of(const std::string& flag) {
  const size_t begin = flag.find_first_not_of('-');
  return begin == std::string::npos ? "" : flag.substr(begin, flag.find('=') - begin);
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::string content(file ? static_cast<size_t>(file.tellg()) : 0, '\0');
  file.seekg(0).read(content.data(), static_cast<std::streamsize>(content.size()));
  return content;
}

// Not as the beginning of a longer name.
bool holds_name(const std::string& content, const std::string& name) {
  size_t at = content.find(name);
  while (at != std::string::npos) {
    const auto next = static_cast<unsigned char>(content[at + name.size()]);
    if (std::isalnum(next) == 0 && next != '_') {
      return true;
    }
    at = content.find(name, at + 1);
  }
  return false;
}

// XLA-CPU's newer emitter, which works tile by tile, gives elementwise loops on small and middling
// arrays that take up to three times as long (`python benchmarks/suite.py --only mlp`).
constexpr std::string_view kExtraOptions = "xla_backend_extra_options";
constexpr std::string_view kOwnOption = "xla_cpu_disable_tiled_emitter";

}  // namespace

bool xla_flags_name(std::string_view flag) {
  const char* flags = std::getenv("XLA_FLAGS");
  return flags != nullptr && std::string_view(flags).find(flag) != std::string_view::npos;
}

std::string xla_flags_of_plugin() {
  const char* given = std::getenv("XLA_FLAGS");
  std::string flags = given == nullptr ? "" : given;
  if ((!flags.empty() && flags[0] != '-') || xla_flags_name(kExtraOptions)) {
    return flags;
  }
  return flags + (flags.empty() ? "--" : " --") + std::string(kExtraOptions) + "=" +
         std::string(kOwnOption);
}

char* getenv_of_plugin(const char* name) {
  if (std::strcmp(name, "XLA_FLAGS") != 0) {
    return std::getenv(name);
  }
  static std::string flags = xla_flags_of_plugin();  // read once, at the plugin's start
  return flags.data();
}

void drop_unknown_xla_flags(const std::string& library) {
  const char* given = std::getenv("XLA_FLAGS");
  if (given == nullptr || *given == '\0') {
    return;
  }
  const bool names_file = *given != '-';  // which has the flags
  if (names_file && !(std::filesystem::is_regular_file(given) && std::ifstream(given))) {
    warn("XLA_FLAGS has the value '" + std::string(given) +
         "', which is left out: it must be flags (--xla_name=value) or a file that can be read");
    unsetenv("XLA_FLAGS");
    return;
  }
  std::string content, known, unknown;
  std::istringstream flags(names_file ? content_of(given) : given);
  for (std::string flag; flags >> flag;) {
    if (content.empty()) {
      content = content_of(library);
    }
    std::string& list = holds_name(content, name_of(flag)) ? known : unknown;
    list += (list.empty() ? "" : " ") + flag;
  }
  if (!unknown.empty()) {
    warn("XLA_FLAGS: the plugin " + library + " does not know " + unknown +
         ", which is left out (flags are spelled --xla_name=value)");
    setenv("XLA_FLAGS", known.c_str(), 1);
  }
}

}  // namespace torch_xla::pjrt
