#include "program/program.h"

#include "base/env.h"
#include "base/error.h"
#include "base/hasher.h"
#include "metrics/metrics.h"
#include "program/disk_cache.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>

namespace torch_xla {

namespace {

struct CacheSlot {
  std::mutex mutex;
  std::shared_ptr<DiskCache> cache;
};

CacheSlot& slot() {
  static auto* instance = new CacheSlot;
  return *instance;
}

std::string default_directory() {
  if (!env::flag("TORCH_XLA_CACHE")) {
    return "";
  }
  std::string directory = env::string("TORCH_XLA_CACHE_DIR");
  if (!directory.empty()) {
    return directory;
  }
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base != nullptr && *base != '\0') {
    return std::string(base) + "/torch_xla";
  }
  const char* home = std::getenv("HOME");
  return home == nullptr ? "" : std::string(home) + "/.cache/torch_xla";
}

std::shared_ptr<DiskCache> disk_cache() {
  std::lock_guard<std::mutex> lock(slot().mutex);
  if (!slot().cache) {
    slot().cache = std::make_shared<DiskCache>(default_directory(), false);
  }
  return slot().cache;
}

void add_words(Hasher& hasher, const std::string& text) {
  hasher.add(text.size());
  uint64_t word = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    word = (word << 8) | static_cast<unsigned char>(text[i]);
    if (i % 8 == 7) {
      hasher.add(word);
    }
  }
  hasher.add(word);
}

std::string cache_key(const ProgramSource& source) {
  Hasher hasher;
  add_words(hasher, source.text);
  add_words(hasher, pjrt::client().fingerprint());
  hasher.add(static_cast<uint64_t>(source.options.replicas));
  hasher.add(static_cast<uint64_t>(source.options.partitions));
  hasher.add(static_cast<uint64_t>(source.options.spmd));
  char text[40];
  std::snprintf(text, sizeof(text), "%016lx%016lx", hasher.high(), hasher.low());
  return text;
}

void dump(const ProgramSource& source, const std::string& key, pjrt::Executable& executable) {
  std::string directory = env::string("TORCH_XLA_DUMP_DIR");
  if (directory.empty()) {
    return;
  }
  std::ofstream(directory + "/" + key + ".stablehlo.mlir") << source.text_with_locations;
  std::ofstream(directory + "/" + key + ".optimized.hlo") << executable.optimized_hlo();
}

pjrt::ExecutablePtr load_cached(const ProgramSource& source, const std::string& key) {
  std::optional<std::string> bytes = disk_cache()->load(key);
  if (!bytes) {
    return nullptr;
  }
  try {
    return pjrt::client().deserialize(*bytes, source.options, source.output_types);
  } catch (const Error&) {
    disk_cache()->remove(key);  // written by something else: compile and replace
    return nullptr;
  }
}

pjrt::ExecutablePtr compile(const ProgramSource& source, const std::string& key) {
  pjrt::ExecutablePtr executable;
  try {
    metrics::Timed timed(metrics::metric("CompileTime"));
    executable = pjrt::client().compile(source.text_with_locations, source.options,
                                        source.output_types);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    throw Error("cannot compile " + source.name + ": " + error.what());
  }
  metrics::counter("UncachedCompile").add();
  if (disk_cache()->enabled()) {
    try {
      disk_cache()->store(key, executable->serialize());
    } catch (const Error&) {
      metrics::counter("UnserializableProgram").add();  // this plugin keeps none on disk
    }
  }
  return executable;
}

}  // namespace

Program::Program(ProgramSource source, pjrt::ExecutablePtr executable)
    : source_(std::move(source)), executable_(std::move(executable)) {
  source_.text_with_locations.clear();
}

ProgramPtr load_or_compile(ProgramSource source) {
  std::string key = cache_key(source);
  pjrt::ExecutablePtr executable = load_cached(source, key);
  if (executable) {
    metrics::counter("PersistentCacheHit").add();
  } else {
    metrics::counter("PersistentCacheMiss").add();
    executable = compile(source, key);
  }
  dump(source, key, *executable);
  return std::make_shared<Program>(std::move(source), std::move(executable));
}

void initialize_disk_cache(const std::string& path, bool readonly) {
  auto cache = std::make_shared<DiskCache>(path.empty() ? default_directory() : path, readonly);
  std::lock_guard<std::mutex> lock(slot().mutex);
  slot().cache = std::move(cache);
}

}  // namespace torch_xla
