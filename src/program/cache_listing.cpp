#include "program/cache_listing.h"

#include "base/error.h"
#include "program/entry.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace torch_xla {

namespace fs = std::filesystem;

namespace {

ListedEntry listed(const fs::path& path, bool verify) {
  Entry entry = read_entry(path, path.stem(), verify ? Read::All : Read::Head);
  if (path.extension() == kUnfinishedSuffix && entry.state != Entry::State::Refused) {
    entry.problem = "it is unfinished: somebody is writing it, or was interrupted";
  }
  return {path.filename(), entry.name, entry.problem, entry.size, entry.used};
}

}  // namespace

std::vector<ListedEntry> list_cache(const std::string& directory, bool verify) {
  struct stat status;
  if (stat(directory.c_str(), &status) != 0) {
    if (errno == ENOENT) {
      return {};
    }
    throw Error("cannot look at the program cache " + directory + ": " + std::strerror(errno));
  }
  if (!S_ISDIR(status.st_mode)) {
    throw Error("the program cache " + directory + " is not a folder");
  }
  if (std::string reason = distrust(status); !reason.empty()) {
    throw Error("the program cache " + directory + " is refused because " + reason +
                ": run chmod go-w on it, or name another one");
  }
  std::vector<ListedEntry> entries;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const fs::path extension = at->path().extension();
    if (extension == kEntrySuffix || extension == kUnfinishedSuffix) {
      entries.push_back(listed(at->path(), verify));
    }
  }
  if (error) {
    throw Error("cannot look at the program cache " + directory + ": " + error.message());
  }
  std::sort(entries.begin(), entries.end(), [](const ListedEntry& x, const ListedEntry& y) {
    return std::pair(-x.used, x.file) < std::pair(-y.used, y.file);
  });
  return entries;
}

std::vector<ListedEntry> clear_cache(const std::string& directory) {
  std::vector<ListedEntry> left;
  for (ListedEntry& entry : list_cache(directory, false)) {
    if (unlink((fs::path(directory) / entry.file).c_str()) != 0 && errno != ENOENT) {
      entry.problem = entry.problem.empty() ? std::strerror(errno) : entry.problem;
      left.push_back(std::move(entry));
    }
  }
  return left;
}

}  // namespace torch_xla
