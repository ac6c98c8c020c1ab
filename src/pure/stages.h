// A call of a pure function as a StableHLO module and as a compiled program, none of it run.
#pragma once

#include "lower/graph_lowering.h"
#include "program/program.h"
#include "pure/entry.h"

#include <map>
#include <string>

namespace torch_xla {

struct LoweredCall {
  std::string name;
  LoweredModule module;
  std::map<std::string, std::string> xla_options;
};

// What the function computes in this kind of call: from the arguments it reads, then what it reads
// besides, to the storages of its results, then what it writes. Without this process's kernels
// where StableHLO says the same. Any thread, without locks.
LoweredCall lower_call(const PureEntry& entry, const CallNumbers& numbers);

ProgramPtr compile_call(const LoweredCall& call);

}  // namespace torch_xla
