#include "program/program.h"

#include "base/env.h"
#include "base/error.h"
#include "base/mutex.h"
#include "metrics/metrics.h"
#include "program/disk_cache.h"
#include "program/program_key.h"
#include "program/progress.h"
#include "timeline/timeline.h"

#include <atomic>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace torch_xla {

namespace {

// The cache in use; it follows the environment unless initialize_disk_cache() chose a directory.
struct CacheSlot {
  Mutex mutex;
  std::string chosen GUARDED_BY(mutex);
  bool readonly GUARDED_BY(mutex) = false;
  std::string directory GUARDED_BY(mutex);  // of `cache`
  std::shared_ptr<DiskCache> cache GUARDED_BY(mutex);
};

CacheSlot& slot() {
  static auto* instance = new CacheSlot;
  return *instance;
}

std::shared_ptr<DiskCache> disk_cache() {
  CacheSlot& s = slot();
  // Without a plugin there is no machine code.
  const bool wanted = env::flag("TORCH_XLA_CACHE") && !pjrt::client().library().empty();
  const std::string by_default = default_cache_directory();
  MutexLock lock(s.mutex);
  const std::string directory = !wanted ? "" : s.chosen.empty() ? by_default : s.chosen;
  const bool readonly = s.readonly;
  if (s.cache && s.directory == directory) {
    return s.cache;
  }
  std::shared_ptr<DiskCache> opened;
  {
    MutexUnlock unlocked(s.mutex);  // opening may warn, through a front end with locks of its own
    opened = std::make_shared<DiskCache>(directory, readonly);
  }
  s.cache = opened;
  s.directory = directory;
  return opened;
}

void write_dump(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  if (!file) {
    warn("TORCH_XLA_DUMP_DIR: cannot write " + path.string());
  }
}

void dump(const ProgramSource& source, const std::string& key, pjrt::Executable& executable) {
  std::filesystem::path directory = env::path("TORCH_XLA_DUMP_DIR");
  if (directory.empty()) {
    return;
  }
  std::error_code error;  // write_dump() reports what could not be made
  std::filesystem::create_directories(directory, error);
  std::string name;
  for (char c : source.name) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  name += "." + key.substr(0, 12);
  write_dump(directory / (name + ".stablehlo.mlir"), source.text_with_locations);
  try {
    write_dump(directory / (name + ".optimized.hlo"), executable.optimized_hlo());
  } catch (const Error& failure) {
    warn("TORCH_XLA_DUMP_DIR: no optimised HLO of " + source.name + ": " + failure.what());
  }
}

pjrt::ExecutablePtr load(DiskCache& cache, const ProgramSource& source, const std::string& key) {
  timeline::Scope span(timeline::Kind::Load, source.name);
  std::optional<std::string> bytes = cache.load(key);
  if (bytes) {
    try {
      pjrt::ExecutablePtr executable =
          pjrt::client().deserialize(*bytes, source.options, source.output_types);
      metrics::counter("PersistentCacheHit").add();
      return executable;
    } catch (const Error&) {
      cache.remove(key);  // this plugin cannot read it: compiled again and replaced
    }
  }
  metrics::counter("PersistentCacheMiss").add();
  return nullptr;
}

pjrt::ExecutablePtr compile(const ProgramSource& source) {
  metrics::Timed timed(metrics::metric("CompileTime"));
  timeline::Scope span(timeline::Kind::Compile, source.name);
  const int64_t delay = source.awaited ? env::integer("TORCH_XLA_PROGRESS") : 0;
  ProgressLine progress(source.name, std::chrono::seconds(delay));
  metrics::counter("UncachedCompile").add();
  try {
    return pjrt::client().compile(source.text_with_locations, source.options, source.output_types);
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError("cannot compile " + source.name + ": " + error.what());
  } catch (const Error& error) {
    throw Error("cannot compile " + source.name + ": " + error.what());
  }
}

void store(DiskCache& cache, const ProgramSource& source, const std::string& key,
           pjrt::Executable& executable) {
  if (!cache.writable()) {
    return;
  }
  std::string bytes;
  try {
    bytes = executable.serialize();
  } catch (const Error& error) {
    metrics::counter("UnserializableProgram").add();
    static std::atomic<bool> warned{false};
    if (!warned.exchange(true)) {
      warn(source.name + " cannot be kept on disk, so every process will compile it again: " +
           error.what() + " (said once; the metric UnserializableProgram counts such programs)");
    }
    return;
  }
  cache.store(key, source.name, bytes);
}

std::atomic<int64_t> live_programs{0};

}  // namespace

Program::~Program() { --live_programs; }

int64_t live_program_count() { return live_programs; }

Program::Program(ProgramSource source, pjrt::ExecutablePtr executable, bool from_disk)
    : source_(std::move(source)), executable_(std::move(executable)), from_disk_(from_disk) {
  ++live_programs;
  source_.text_with_locations.clear();
  if (!source_.readable.empty()) {
    source_.text = std::move(source_.readable);
  }
}

ProgramPtr load_or_compile(ProgramSource source) {
  const pjrt::Client& client = pjrt::client();
  std::shared_ptr<DiskCache> cache = disk_cache();
  // Without a cache the key only names what is dumped.
  const std::string machine =
      cache->enabled() ? machine_of(client.library(), client.fingerprint(), *cache) : "";
  const std::string key = program_key(source, machine, client.platform_name());
  pjrt::ExecutablePtr executable = cache->enabled() ? load(*cache, source, key) : nullptr;
  const bool from_disk = executable != nullptr;
  if (!from_disk) {
    executable = compile(source);
    store(*cache, source, key, *executable);
  }
  dump(source, key, *executable);
  return std::make_shared<Program>(std::move(source), std::move(executable), from_disk);
}

std::string default_cache_directory() {
  std::string directory = env::path("TORCH_XLA_CACHE_DIR");
  directory = directory.empty() ? env::path("XLA_PERSISTENT_CACHE_PATH") : directory;
  if (!directory.empty()) {
    return directory;
  }
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base != nullptr && *base != '\0') {
    return std::string(base) + "/torch_xla";
  }
  const char* home = std::getenv("HOME");
  return home == nullptr ? "" : std::string(home) + "/.cache/torch_xla";
}

void initialize_disk_cache(const std::string& path, bool readonly) {
  CacheSlot& s = slot();
  MutexLock lock(s.mutex);
  s.chosen = path;
  s.readonly = readonly;
  s.cache = nullptr;
}

}  // namespace torch_xla
