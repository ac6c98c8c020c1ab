// Serialised programs on disk, shared by processes. Entries are machine code: a directory or file
// that somebody else could have written is refused. Nothing here throws for a cache that cannot be
// used; it warns once and goes on without. Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace torch_xla {

class DiskCache {
 public:
  // Empty directory: no cache.
  DiskCache(std::string directory, bool readonly);
  bool enabled() const { return !directory_.empty(); }

  std::optional<std::string> load(const std::string& key);
  void store(const std::string& key, const std::string& bytes);
  void remove(const std::string& key);

 private:
  std::string path_of(const std::string& key) const;
  void trim();
  std::string directory_;
  bool readonly_;
};

}  // namespace torch_xla
