// Serialised programs on disk, shared by processes. Entries are machine code: a directory or file
// that somebody else could have written is refused. Nothing here throws for a cache that cannot be
// used; it warns once and goes on without. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace torch_xla {

class DiskCache {
 public:
  // Empty directory: no cache. A missing one is made, for this user only.
  DiskCache(std::string directory, bool readonly);
  bool enabled() const { return !directory_.empty(); }
  bool writable() const { return enabled() && !readonly_; }

  // Nothing if there is no entry, or if it is damaged or not to be trusted.
  std::optional<std::string> load(const std::string& key) const;
  // `name` is for people who list the cache. Replaces the entry at once or not at all; then deletes
  // those used longest ago, down to TORCH_XLA_CACHE_SIZE_MB.
  void store(const std::string& key, const std::string& name, const std::string& bytes);
  void remove(const std::string& key) const;

 private:
  std::string path_of(const std::string& key) const;
  int64_t trim(int64_t limit) const;

  std::string directory_;
  bool readonly_;
  std::atomic<int64_t> estimated_size_{-1};  // of all entries; -1: not looked at yet
};

}  // namespace torch_xla
