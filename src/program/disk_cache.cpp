#include "program/disk_cache.h"

#include "base/env.h"
#include "base/error.h"
#include "base/hasher.h"
#include "program/file.h"

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

constexpr char kEntrySuffix[] = ".program";
constexpr char kTemporarySuffix[] = ".program-part";

// In front of each entry's bytes.
struct Header {
  char magic[8];
  uint64_t size;
  uint64_t checksum_low, checksum_high;  // of key and bytes: an entry renamed is not accepted
};

Header header_of(const std::string& key, std::string_view bytes) {
  Hasher hasher;
  hasher.add(key);
  hasher.add(bytes);
  Header header = {{'t', 'x', 'l', 'a', 'p', 'g', 'm', '1'}, bytes.size(), 0, 0};
  header.checksum_low = hasher.low();
  header.checksum_high = hasher.high();
  return header;
}

// Each kind of trouble once a process, however many programs meet it.
enum Trouble { kUnusable, kRefused, kUnwritable, kTroubles };
void warn_once(Trouble trouble, const std::string& message) {
  static std::atomic<bool> warned[kTroubles];
  if (!warned[trouble].exchange(true)) {
    warn(message + "; programs are compiled instead (TORCH_XLA_CACHE=0 turns the cache off)");
  }
}

bool only_ours(const struct stat& status) {
  return status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool read_exactly(int file, void* data, size_t size) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    ssize_t count = read(file, at, size);
    if (count == 0 || (count < 0 && errno != EINTR)) {
      return false;
    }
    if (count > 0) {
      at += count;
      size -= static_cast<size_t>(count);
    }
  }
  return true;
}

bool write_exactly(int file, const void* data, size_t size) {
  for (const char* at = static_cast<const char*>(data); size > 0;) {
    ssize_t count = write(file, at, size);
    if (count == 0 || (count < 0 && errno != EINTR)) {
      return false;
    }
    if (count > 0) {
      at += count;
      size -= static_cast<size_t>(count);
    }
  }
  return true;
}

// Replaces `path` at once or not at all; false, with errno, if it cannot.
bool write_entry(const std::string& path, const Header& header, const std::string& bytes) {
  std::string temporary = path + ".XXXXXX" + kTemporarySuffix;
  File file(mkostemps(temporary.data(), sizeof(kTemporarySuffix) - 1, O_CLOEXEC));
  if (file.descriptor < 0) {
    return false;
  }
  if (write_exactly(file.descriptor, &header, sizeof(header)) &&
      write_exactly(file.descriptor, bytes.data(), bytes.size()) &&
      rename(temporary.c_str(), path.c_str()) == 0) {
    return true;
  }
  int reason = errno;
  unlink(temporary.c_str());
  errno = reason;
  return false;
}

// Missing parents too, all of them for this user only.
void make_directories(const fs::path& path) {
  std::error_code error;
  if (path.empty() || fs::exists(path, error)) {
    return;
  }
  make_directories(path.parent_path());
  mkdir(path.c_str(), 0700);
}

}  // namespace

DiskCache::DiskCache(std::string directory, bool readonly)
    : directory_(std::move(directory)), readonly_(readonly) {
  if (directory_.empty()) {
    return;
  }
  if (!readonly_) {
    make_directories(directory_);
  }
  struct stat status;
  if (stat(directory_.c_str(), &status) != 0) {
    warn_once(kUnusable,
              "the program cache " + directory_ + " cannot be used: " + std::strerror(errno));
  } else if (!S_ISDIR(status.st_mode)) {
    warn_once(kUnusable, "the program cache " + directory_ + " is not a directory");
  } else if (!only_ours(status)) {
    warn_once(kRefused, "the program cache " + directory_ +
                            " is refused because another user owns it or may write to it: run "
                            "chmod go-w on it, or choose another one with TORCH_XLA_CACHE_DIR");
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
  std::string path = path_of(key);
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status;
  if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0) {
    return std::nullopt;
  }
  if (!S_ISREG(status.st_mode) || !only_ours(status)) {
    warn_once(kRefused, "the cached program " + path +
                            " is refused because another user owns it or may write to it");
    return std::nullopt;
  }
  Header header;
  if (status.st_size < static_cast<off_t>(sizeof(header)) ||
      !read_exactly(file.descriptor, &header, sizeof(header))) {
    return std::nullopt;
  }
  std::string bytes(static_cast<size_t>(status.st_size) - sizeof(header), '\0');
  if (!read_exactly(file.descriptor, bytes.data(), bytes.size())) {
    return std::nullopt;
  }
  Header expected = header_of(key, bytes);
  if (std::memcmp(&header, &expected, sizeof(header)) != 0) {
    return std::nullopt;  // damaged: compiled again and replaced
  }
  futimens(file.descriptor, nullptr);  // used now; works on our own file opened for reading
  return bytes;
}

void DiskCache::store(const std::string& key, const std::string& bytes) {
  if (!writable()) {
    return;
  }
  if (!write_entry(path_of(key), header_of(key, bytes), bytes)) {
    warn_once(kUnwritable,
              "cannot write to the program cache " + directory_ + ": " + std::strerror(errno));
    return;
  }
  // Looking at every entry is slow in a large cache: done at first, and when it may have grown
  // full.
  const int64_t limit = env::integer("TORCH_XLA_CACHE_SIZE_MB") << 20;
  const int64_t before = estimated_size_.fetch_add(static_cast<int64_t>(bytes.size()));
  if (before < 0 || before + static_cast<int64_t>(bytes.size()) > limit) {
    estimated_size_ = trim(limit);
  }
}

void DiskCache::remove(const std::string& key) const {
  if (writable()) {
    unlink(path_of(key).c_str());
  }
}

// Returns the size of what is left: nine tenths of the limit if something had to go. Deletes only
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
    if (at->path().extension() != kEntrySuffix && at->path().extension() != kTemporarySuffix) {
      continue;
    }
    struct stat status;
    if (lstat(at->path().c_str(), &status) == 0) {
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
  for (size_t i = 0; i < entries.size() && total > limit - limit / 10; ++i) {
    fs::remove(entries[i].path, error);
    total -= entries[i].size;
  }
  return total;
}

}  // namespace torch_xla
