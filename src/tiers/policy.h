// When a graph is interpreted and when it is compiled (docs/performance.md, "Tiers"). Stateless;
// any thread.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <optional>
#include <string>

namespace torch_xla::tiers {

enum class Policy : uint8_t {
  Counted,  // so many runs are interpreted, then the program is used: the same in every process
  Async,    // the program is used as soon as it is there
  Off,      // compiled at once
  Never,    // interpreted always
};

struct Options {
  Policy policy = Policy::Counted;
  // Interpreted before the program's turn; else by the graph.
  std::optional<int64_t> runs = std::nullopt;
  int64_t compile_at_once_up_to = 0;  // operations
  // Nothing asked for programs (a compiled function may, in its options): operations may as well
  // run as they are called (reading_habit.h), for which they need not be recorded.
  bool may_be_called = false;
  // Functions' own programs run in the same steps (reading_habit.h): only what is too short for
  // kernels to have a team had better be none.
  bool beside_programs = false;
};

// TORCH_XLA_TIERS and its like. Throws for a value that is none of a policy's names.
Options from_environment();
Policy parse_policy(const std::string& name);

// What the graph is expected to cost, in seconds on an ordinary processor; functions of the graph
// alone, so that the same program does the same in every process.
struct Estimate {
  int64_t operations = 0;
  int64_t modules = 0;  // of these, modules that others wrote: each is a program when interpreted
  double compiling = 0;
  double moving = 0;  // reading and writing memory in one interpreted run: what a compiler may save
  double runs = 0;    // of its operations, in one run of the graph
  double recorded = 0;  // of these, the operations that each run records anew: not those of a call
  double computed = 0;  // numbers, in one run: elements of results, products of these
  double gain = 0;      // of the program of a small graph over interpreting it
  // Layers of oneDNN's recurrent kernels: a program calls them, too, but on a thread of its own,
  // whose team of OpenMP's takes them half again as long.
  bool recurrent = false;
  bool calls_host = false;  // has operations that only PyTorch's kernels can do
};
Estimate estimate(const Graph& graph);

bool compiles_at_once(const Estimate& estimate, const Options& options);
int64_t interpreted_runs(const Estimate& estimate, const Options& options);
// Recording an operation takes as long as calling it, so a program of few numbers saves nothing of
// what is recorded, and then has to be found, launched and waited for.
bool is_better_called(const Estimate& estimate, const Options& options);
// Is a program slower, however often it runs?
bool is_better_interpreted(const Estimate& estimate, const Options& options);

}  // namespace torch_xla::tiers
