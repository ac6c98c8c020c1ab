// The torch_xla.compile region that the calling thread is in. Operations inside are recorded even
// in eager mode; its rules apply to every program that runs before it ends. It travels with
// PyTorch's thread-local state, so that the backward pass of a region is inside it, too.
// What computes little runs as it is called there as elsewhere (tiers/reading_habit.h).
#pragma once

#include "base/mutex.h"
#include "ir/graph.h"
#include "tiers/policy.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace torch_xla {

// What stays the same between calls of one compiled function. Thread-safe.
class CompiledFunction {
 public:
  explicit CompiledFunction(std::string name) : name(std::move(name)) {}

  const std::string name;  // empty: unknown
  bool full_graph = false;
  std::optional<int64_t> max_different_graphs;
  std::map<std::string, std::string> xla_options;
  std::optional<tiers::Policy> tiers;  // instead of the environment's

  // Whether it asks for no more than to run: then what computes little need not be recorded.
  bool may_be_called() const {
    return !full_graph && !max_different_graphs && xla_options.empty() && !tiers;
  }
  // Counts a graph that is about to run; throws, with the differences, when there are too many.
  void admit(const Graph& graph);

 private:
  struct Seen {
    uint64_t hash;
    std::vector<std::string> inputs;      // types
    std::vector<std::string> operations;  // "aten::mm at train.py:42"
  };
  std::string differences(const std::vector<Seen>& seen) const;
  Mutex mutex_;
  std::vector<Seen> seen_ GUARDED_BY(mutex_);
};

struct ActiveRegion : c10::DebugInfoBase {
  explicit ActiveRegion(std::shared_ptr<CompiledFunction> function)
      : function(std::move(function)) {}
  const std::shared_ptr<CompiledFunction> function;
  std::atomic<bool> ending{false};  // the program at its end may run
};

ActiveRegion* current_region();
// Whether the thread is in none, or in one whose function may_be_called().
bool region_may_be_called();
c10::DebugInfoKind region_kind();  // under which it is in the thread's state

// Whether the calling thread is where nothing may run (full_graph), and the error that says so.
bool running_is_forbidden();
// The same for all threads, until it is allowed again.
void set_running_allowed(bool allowed);
[[noreturn]] void throw_unexpected_run();

// Names, for that error, what makes things run on this thread: an operator or a function.
class RunReason {
 public:
  explicit RunReason(const char* what);
  ~RunReason();
  RunReason(const RunReason&) = delete;
  RunReason& operator=(const RunReason&) = delete;

 private:
  const char* outer_;
};

}  // namespace torch_xla
