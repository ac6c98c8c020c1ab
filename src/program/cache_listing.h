// A cache folder as people look at it: `python -m torch_xla cache`. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch_xla {

struct ListedEntry {
  std::string file;     // its name in the folder
  std::string name;     // of the program; empty if it cannot be told
  std::string problem;  // why it is not used, as in "it is a folder"; empty if it is
  int64_t size = 0;
  int64_t used = 0;  // last, in seconds since 1970
};

// What bears an entry's name, used last first. `verify`: reads each and compares its checksum. None
// of a folder that does not exist; throws for one that cannot be used, saying why.
std::vector<ListedEntry> list_cache(const std::string& directory, bool verify);

// Deletes all entries; processes that have loaded one keep it. Returns those that stay, such as
// folders; throws as list_cache() does.
std::vector<ListedEntry> clear_cache(const std::string& directory);

}  // namespace torch_xla
