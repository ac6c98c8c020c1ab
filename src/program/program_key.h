// What tells programs apart on disk: all that changes their machine code, and nothing else. Neither
// names, lines and paths of the user's program, nor where the plugin lies. Thread-safe.
#pragma once

#include "program/disk_cache.h"
#include "program/program.h"

#include <string>

namespace torch_xla {

// How the names of entries begin that hold a plugin's digest instead of a program.
inline constexpr char kDigestPrefix[] = "plugin-";

// The content of the plugin's library, Client::fingerprint(), and what its compiler was told. The
// library is read once in the life of `cache`, which remembers its digest while the file is the
// same.
std::string machine_of(const std::string& library, const std::string& fingerprint,
                       DiskCache& cache);

// `machine`: machine_of(). Also the entry's name in the cache.
std::string program_key(const ProgramSource& source, const std::string& machine,
                        const std::string& platform);

}  // namespace torch_xla
