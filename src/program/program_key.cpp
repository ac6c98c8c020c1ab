#include "program/program_key.h"

#include "base/env.h"
#include "base/hasher.h"
#include "base/mutex.h"
#include "pjrt/compile_options.h"
#include "pjrt/xla_flags.h"
#include "program/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>
#include <vector>

namespace torch_xla {

namespace {

// Of what a file holds: two builds of a plugin may agree in version and size. Empty if it cannot be
// read.
std::string digest_of(int file) {
  Hasher hasher;
  std::vector<char> piece(size_t{1} << 20);
  ssize_t count = 0;
  while ((count = read(file, piece.data(), piece.size())) > 0) {
    hasher.add(std::string_view(piece.data(), static_cast<size_t>(count)));
  }
  return count < 0 ? "" : hasher.hex();
}

// Says that a file is the same as before without reading it.
std::string identity_of(const std::string& path, const struct stat& status) {
  Hasher hasher;
  hasher.add(path);
  for (int64_t part :
       {static_cast<int64_t>(status.st_ino), static_cast<int64_t>(status.st_size),
        static_cast<int64_t>(status.st_mtim.tv_sec), static_cast<int64_t>(status.st_mtim.tv_nsec),
        static_cast<int64_t>(status.st_ctim.tv_sec),
        static_cast<int64_t>(status.st_ctim.tv_nsec)}) {
    hasher.add(static_cast<uint64_t>(part));
  }
  return hasher.hex();
}

std::string library_digest(const std::string& path, DiskCache& cache) {
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0) {
    return "";
  }
  const std::string note = kDigestPrefix + identity_of(path, status);
  if (std::optional<std::string> known = cache.load(note)) {
    return *known;
  }
  std::string digest = digest_of(file.descriptor);
  if (!digest.empty()) {
    cache.store(note, "digest of " + path, digest);
  }
  return digest;
}

}  // namespace

std::string machine_of(const std::string& library, const std::string& fingerprint,
                       DiskCache& cache) {
  static Mutex mutex;
  static auto& [path, digest] = *new std::pair<std::string, std::string>;  // of the one plugin
  MutexLock lock(mutex);
  if (digest.empty() || path != library) {
    path = library;
    digest = library_digest(path, cache);
  }
  return fingerprint + "|" + digest + "|" + pjrt::xla_flags_of_plugin();
}

std::string program_key(const ProgramSource& source, const std::string& machine,
                        const std::string& platform) {
  Hasher hasher;
  hasher.add(source.text);
  hasher.add(machine);
  hasher.add(pjrt::encode_compile_options(source.options, platform));
  return hasher.hex();
}

}  // namespace torch_xla
