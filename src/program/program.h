// Compiled programs: memory and disk cache in front of the plugin's compiler. Thread-safe.
#pragma once

#include "pjrt/client.h"

#include <memory>
#include <string>

namespace torch_xla {

struct ProgramSource {
  std::string name;                 // for messages and metrics: "step_fn", "sync at train.py:42"
  std::string text;                 // StableHLO without locations and names: the key on disk
  std::string readable;             // the same with names, for people; empty: `text`
  std::string text_with_locations;  // what is compiled
  bool awaited = true;              // somebody is to be told when compiling takes long
  pjrt::CompileOptions options;
  std::vector<TensorType> output_types;
};

class Program {
 public:
  Program(ProgramSource source, pjrt::ExecutablePtr executable, bool from_disk);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  const std::string& name() const { return source_.name; }
  const std::string& text() const { return source_.text; }
  pjrt::Executable& executable() const { return *executable_; }
  bool from_disk() const { return from_disk_; }  // loaded, not compiled

 private:
  ProgramSource source_;
  pjrt::ExecutablePtr executable_;
  bool from_disk_;
};
using ProgramPtr = std::shared_ptr<const Program>;

// Programs in memory.
int64_t live_program_count();

// From the disk cache, or compiled and stored there. Throws on compile errors, naming the program;
// a cache that cannot be used only warns. Blocks; call without locks.
ProgramPtr load_or_compile(ProgramSource source);

// Where programs are kept unless initialize_disk_cache() says otherwise; empty: nowhere.
std::string default_cache_directory();

// xr.initialize_cache(path, readonly). Empty path: the default of docs/environment.md.
void initialize_disk_cache(const std::string& path, bool readonly);

}  // namespace torch_xla
