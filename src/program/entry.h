// One file of the program cache: a header, the program's name, its machine code. Nobody may have
// written it but this user, for it will be executed. Any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace torch_xla {

struct Entry {
  enum class State : uint8_t { Good, Missing, Damaged, Refused };
  State state = State::Good;
  std::string problem;  // of a damaged or refused one, as in "it is a folder"
  std::string name;     // of the program, for people
  std::string bytes;
  int64_t size = 0;  // of the file
  time_t used = 0;   // last
};

// Only as far as the name, or all of it, compared with its checksum.
enum class Read : uint8_t { Head, All };
Entry read_entry(const std::string& path, const std::string& key, Read how);

// Replaces `path` at once or not at all; false, with errno, if it cannot.
bool write_entry(const std::string& path, const std::string& key, std::string_view name,
                 std::string_view bytes);

// Why nothing here may be trusted, as in "another user owns it"; empty if it may.
std::string distrust(const struct stat& status);

inline constexpr char kEntrySuffix[] = ".program";
inline constexpr char kUnfinishedSuffix[] = ".program-part";

}  // namespace torch_xla
