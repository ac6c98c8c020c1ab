// How many programs a table may keep in memory: as many as the user allows, and on the CPU as many
// as the process has room for in its memory mappings. Thread-safe.
#pragma once

#include "base/mutex.h"
#include "program/mapping_watch.h"

namespace torch_xla {

class MemoryLimit {
 public:
  MemoryLimit();

  // Asked before each new program of a table that has so many.
  size_t most(size_t kept) EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  MappingWatch mappings_ GUARDED_BY(mutex_);
};

}  // namespace torch_xla
