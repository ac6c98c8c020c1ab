#include "program/disk_cache.h"

#include "base/env.h"
#include "base/error.h"
#include "program/entry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace torch_xla {

namespace fs = std::filesystem;

namespace {

// Each kind of trouble once a process, however many programs meet it.
enum Trouble { kUnusable, kRefused, kUnwritable, kTooLarge, kTroubles };
void warn_once(Trouble trouble, const std::string& message) {
  static std::atomic<bool> warned[kTroubles];
  if (!warned[trouble].exchange(true)) {
    warn(message + "; programs are compiled instead (TORCH_XLA_CACHE=0 turns the cache off)");
  }
}

// What is left where something has to go, so that not every program has something go.
int64_t kept_of(int64_t limit) { return limit - limit / 10; }

// Missing parents too, all of them for this user only. Why not, as errno has it, or 0.
int make_directories(const fs::path& path) {
  std::error_code error;
  if (path.empty() || fs::exists(path, error)) {
    return 0;
  }
  if (const int problem = make_directories(path.parent_path())) {
    return problem;
  }
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

}  // namespace

DiskCache::DiskCache(std::string directory, bool readonly)
    : directory_(std::move(directory)), readonly_(readonly) {
  if (directory_.empty()) {
    return;
  }
  const int problem = readonly_ ? 0 : make_directories(directory_);
  struct stat status;
  if (stat(directory_.c_str(), &status) != 0) {
    warn_once(kUnusable, "the program cache " + directory_ +
                             " cannot be used: " + std::strerror(problem != 0 ? problem : errno));
  } else if (!S_ISDIR(status.st_mode)) {
    warn_once(kUnusable, "the program cache " + directory_ + " is not a directory");
  } else if (std::string reason = distrust(status); !reason.empty()) {
    warn_once(kRefused, "the program cache " + directory_ + " is refused because " + reason +
                            (status.st_uid == geteuid() ? ": run chmod go-w on it, or" : ":") +
                            " choose another one with TORCH_XLA_CACHE_DIR");
  } else {
    return;
  }
  directory_.clear();
}

std::string DiskCache::path_of(const std::string& key) const {
  return directory_ + "/" + key + kEntrySuffix;
}

std::optional<std::string> DiskCache::load(const std::string& key) const {
  if (!enabled()) {
    return std::nullopt;
  }
  const std::string path = path_of(key);
  Entry entry = read_entry(path, key, Read::All);
  if (entry.state == Entry::State::Refused) {
    warn_once(kRefused, "the cached program " + path + " is refused: " + entry.problem);
  }
  if (entry.state != Entry::State::Good) {
    return std::nullopt;  // a damaged one is compiled again and replaced
  }
  utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);  // used now
  return std::move(entry.bytes);
}

void DiskCache::store(const std::string& key, const std::string& name, const std::string& bytes) {
  if (!writable()) {
    return;
  }
  const int64_t limit = env::integer("TORCH_XLA_CACHE_SIZE_MB") << 20;
  const auto size = static_cast<int64_t>(bytes.size());
  if (size > kept_of(limit)) {  // it would push out all others, and then itself
    warn_once(kTooLarge, "a program of " + std::to_string(size >> 20) +
                             " MB is not kept in the program cache, which TORCH_XLA_CACHE_SIZE_MB "
                             "limits to " +
                             std::to_string(limit >> 20));
    return;
  }
  if (!write_entry(path_of(key), key, name, bytes)) {
    warn_once(kUnwritable,
              "cannot write to the program cache " + directory_ + ": " + std::strerror(errno));
    return;
  }
  // Looking at every entry is slow in a large cache: done at first, and when it may have grown
  // full.
  const int64_t before = estimated_size_.fetch_add(size);
  if (before < 0 || before + size > limit) {
    estimated_size_ = trim(limit);
  }
}

void DiskCache::remove(const std::string& key) const {
  if (writable()) {
    unlink(path_of(key).c_str());
  }
}

// Returns the size of what is left: `kept_of(limit)` if something had to go. Deletes only
// what this class writes, for the directory may hold other things of the user's. Another process
// doing the same at the same time is harmless.
int64_t DiskCache::trim(int64_t limit) const {
  struct Entry {
    fs::file_time_type used;
    int64_t size;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator at(directory_, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() != kEntrySuffix && at->path().extension() != kUnfinishedSuffix) {
      continue;
    }
    struct stat status;
    if (lstat(at->path().c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
      std::error_code gone;
      entries.push_back({at->last_write_time(gone), status.st_size, at->path()});
      total += status.st_size;
    }
  }
  if (total <= limit) {
    return total;
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& x, const Entry& y) { return x.used < y.used; });
  for (size_t i = 0; i < entries.size() && total > kept_of(limit); ++i) {
    fs::remove(entries[i].path, error);
    total -= entries[i].size;
  }
  return total;
}

}  // namespace torch_xla
