#include "program/disk_cache.h"

#include "base/env.h"
#include "base/error.h"
#include "base/hasher.h"

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

constexpr char kMagic[8] = {'t', 'x', 'l', 'a', 'p', 'g', 'm', '1'};

struct Header {
  char magic[8];
  uint64_t size;
  uint64_t checksum_low, checksum_high;
};

Header header_of(const std::string& bytes) {
  Header header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.size = bytes.size();
  Hasher hasher;
  size_t words = bytes.size() / 8;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + 8 * i, 8);
    hasher.add(word);
  }
  hasher.add(std::string_view(bytes).substr(words * 8));
  header.checksum_low = hasher.low();
  header.checksum_high = hasher.high();
  return header;
}

void warn_once(const std::string& message) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    warn(message + "; programs are compiled without the disk cache (TORCH_XLA_CACHE=0 silences "
                   "this)");
  }
}

bool only_ours(const struct stat& status) {
  return status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::optional<std::string> read_all(int file) {
  std::string bytes;
  char chunk[1 << 16];
  ssize_t count = 0;
  while ((count = read(file, chunk, sizeof(chunk))) > 0) {
    bytes.append(chunk, static_cast<size_t>(count));
  }
  return count < 0 ? std::nullopt : std::optional(std::move(bytes));
}

bool write_all(int file, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t count = write(file, at, size);
    if (count <= 0) {
      return false;
    }
    at += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

DiskCache::DiskCache(std::string directory, bool readonly)
    : directory_(std::move(directory)), readonly_(readonly) {
  if (directory_.empty()) {
    return;
  }
  std::error_code error;
  fs::path path(directory_);
  if (!readonly_ && path.has_parent_path()) {
    fs::create_directories(path.parent_path(), error);
  }
  if (!readonly_) {
    mkdir(directory_.c_str(), 0700);
  }
  struct stat status;
  if (stat(directory_.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    warn_once("the program cache " + directory_ + " cannot be created: " + std::strerror(errno));
    directory_.clear();
  } else if (!only_ours(status)) {
    warn_once("the program cache " + directory_ +
              " is refused: another user owns it or may write to it (chmod go-w, or choose "
              "TORCH_XLA_CACHE_DIR)");
    directory_.clear();
  }
}

std::string DiskCache::path_of(const std::string& key) const {
  return directory_ + "/" + key + ".program";
}

std::optional<std::string> DiskCache::load(const std::string& key) {
  if (!enabled()) {
    return std::nullopt;
  }
  int file = open(path_of(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) {
    return std::nullopt;
  }
  struct stat status;
  bool trusted = fstat(file, &status) == 0 && only_ours(status);
  std::optional<std::string> content = trusted ? read_all(file) : std::nullopt;
  close(file);
  if (!trusted) {
    warn_once("the cached program " + path_of(key) +
              " is refused: another user owns it or may write to it");
    return std::nullopt;
  }
  if (!content || content->size() < sizeof(Header)) {
    return std::nullopt;
  }
  Header header;
  std::memcpy(&header, content->data(), sizeof(header));
  content->erase(0, sizeof(header));
  Header expected = header_of(*content);
  if (std::memcmp(&header, &expected, sizeof(header)) != 0) {
    return std::nullopt;  // damaged: compiled again and replaced
  }
  utimensat(AT_FDCWD, path_of(key).c_str(), nullptr, 0);
  return content;
}

void DiskCache::store(const std::string& key, const std::string& bytes) {
  if (!enabled() || readonly_) {
    return;
  }
  static std::atomic<uint64_t> serial{0};
  std::string temporary = path_of(key) + "." + std::to_string(getpid()) + "." +
                          std::to_string(serial.fetch_add(1)) + ".tmp";
  int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  Header header = header_of(bytes);
  bool written = file >= 0 && write_all(file, &header, sizeof(header)) &&
                 write_all(file, bytes.data(), bytes.size());
  int reason = errno;
  if (file >= 0) {
    written = close(file) == 0 && written;
  }
  if (!written || rename(temporary.c_str(), path_of(key).c_str()) != 0) {
    unlink(temporary.c_str());
    warn_once("cannot write to the program cache " + directory_ + ": " + std::strerror(reason));
    return;
  }
  trim();
}

void DiskCache::remove(const std::string& key) {
  if (enabled() && !readonly_) {
    unlink(path_of(key).c_str());
  }
}

// Oldest use first, down to the size limit. Another process doing the same is harmless.
void DiskCache::trim() {
  struct Entry {
    fs::file_time_type time;
    uintmax_t size;
    fs::path path;
  };
  std::error_code error;
  std::vector<Entry> entries;
  uintmax_t total = 0;
  for (const auto& file : fs::directory_iterator(directory_, error)) {
    Entry entry{file.last_write_time(error), file.file_size(error), file.path()};
    if (!error) {
      total += entry.size;
      entries.push_back(std::move(entry));
    }
  }
  uintmax_t limit = static_cast<uintmax_t>(env::integer("TORCH_XLA_CACHE_SIZE_MB")) << 20;
  if (total <= limit) {
    return;
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& x, const Entry& y) { return x.time < y.time; });
  for (const Entry& entry : entries) {
    if (total <= limit) {
      return;
    }
    fs::remove(entry.path, error);
    total -= entry.size;
  }
}

}  // namespace torch_xla
