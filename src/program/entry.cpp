#include "program/entry.h"

#include "base/hasher.h"
#include "program/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace torch_xla {

namespace {

struct Header {
  char magic[8];
  uint64_t name_size, size;
  uint64_t checksum_low, checksum_high;  // of key, name, bytes: one renamed is not accepted
};
constexpr char kMagic[] = "txlapgm2";

Header header_of(std::string_view key, std::string_view name, std::string_view bytes) {
  Hasher hasher;
  hasher.add(key);
  hasher.add(name);
  hasher.add(bytes);
  Header header = {{}, name.size(), bytes.size(), hasher.low(), hasher.high()};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  return header;
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

std::string kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "it is a folder";
    case S_IFIFO:
      return "it is a pipe";
    case S_IFLNK:
      return "it is a link";
    case S_IFREG:
      return "";
    default:
      return "it is not a file";
  }
}

// Name and bytes of an open file whose size is known.
bool read_content(int file, const std::string& key, Read how, Entry& entry) {
  Header header;
  if (entry.size < static_cast<int64_t>(sizeof(header)) ||
      !read_exactly(file, &header, sizeof(header)) ||
      std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) {
    return false;
  }
  const uint64_t content = static_cast<uint64_t>(entry.size) - sizeof(header);
  if (header.name_size > content || header.size != content - header.name_size) {
    return false;
  }
  entry.name.resize(header.name_size);
  if (!read_exactly(file, entry.name.data(), entry.name.size())) {
    return false;
  }
  if (how == Read::Head) {
    return true;
  }
  entry.bytes.resize(header.size);
  if (!read_exactly(file, entry.bytes.data(), entry.bytes.size())) {
    return false;
  }
  const Header expected = header_of(key, entry.name, entry.bytes);
  return std::memcmp(&header, &expected, sizeof(header)) == 0;
}

Entry refused(Entry entry, std::string problem) {
  entry.state = Entry::State::Refused;
  entry.problem = std::move(problem);
  return entry;
}

}  // namespace

std::string distrust(const struct stat& status) {
  if (status.st_uid != geteuid()) {
    return "another user owns it";
  }
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "other users may write to it" : "";
}

Entry read_entry(const std::string& path, const std::string& key, Read how) {
  Entry entry;
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) {
    entry.state = Entry::State::Missing;
    return entry;
  }
  entry.size = status.st_size;
  entry.used = status.st_mtime;
  if (std::string kind = kind_of(status.st_mode); !kind.empty()) {
    return refused(std::move(entry), std::move(kind));
  }
  // What it is may have changed: the open file is what counts.
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.descriptor < 0 && errno == ENOENT) {
    entry.state = Entry::State::Missing;  // deleted meanwhile
    return entry;
  }
  if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0) {
    return refused(std::move(entry), std::strerror(errno));
  }
  if (std::string kind = kind_of(status.st_mode); !kind.empty()) {
    return refused(std::move(entry), std::move(kind));
  }
  if (std::string reason = distrust(status); !reason.empty()) {
    return refused(std::move(entry), std::move(reason));
  }
  entry.size = status.st_size;
  if (!read_content(file.descriptor, key, how, entry)) {
    entry.state = Entry::State::Damaged;
    entry.problem = "it is damaged";
    entry.name.clear();
    entry.bytes.clear();
  }
  return entry;
}

bool write_entry(const std::string& path, const std::string& key, std::string_view name,
                 std::string_view bytes) {
  std::string temporary = path + ".XXXXXX" + kUnfinishedSuffix;
  File file(mkostemps(temporary.data(), sizeof(kUnfinishedSuffix) - 1, O_CLOEXEC));
  if (file.descriptor < 0) {
    return false;
  }
  const Header header = header_of(key, name, bytes);
  if (write_exactly(file.descriptor, &header, sizeof(header)) &&
      write_exactly(file.descriptor, name.data(), name.size()) &&
      write_exactly(file.descriptor, bytes.data(), bytes.size()) &&
      rename(temporary.c_str(), path.c_str()) == 0) {
    return true;
  }
  int reason = errno;
  unlink(temporary.c_str());
  errno = reason;
  return false;
}

}  // namespace torch_xla
