// The programs of one graph structure, and which tier runs it now: the interpreter, or a program.
// Thread-safe; call without locks, since it may compile or wait.
#pragma once

#include "base/mutex.h"
#include "tiers/background.h"
#include "tiers/policy.h"

namespace torch_xla {

class Structure : public std::enable_shared_from_this<Structure> {
 public:
  // The program for the graph's numbers; null: this run is to be interpreted. `name` is the
  // graph's in explanations and errors: "step_fn", or "sync at train.py:42" where no name was
  // given. With Policy::Off there is always a program, compiled on a miss: literals first, then
  // with every number that has been seen to differ as an input. Throws the compiler's errors where
  // there is no other tier.
  VariantPtr choose(const Graph& graph, const std::string& name, const tiers::Options& options)
      EXCLUDES(trace_mutex);

  // Whether the interpreter is where this graph stays, after as many runs as come before a program
  // of another: its kernels need not be eager PyTorch's any more.
  bool stays_interpreted(const tiers::Options& options) EXCLUDES(trace_mutex);

  // Whether its operations had better not been recorded.
  bool is_better_called(const Graph& graph, const tiers::Options& options) EXCLUDES(trace_mutex);

  // From now on there is no other tier than the program: an operation cannot be interpreted.
  void give_up_interpreting();

 private:
  // What has happened since a program was missed.
  struct Miss {
    int64_t runs = 0;    // interpreted
    uint64_t event = 0;  // explain/history.h
    tiers::JobPtr job;
  };

  VariantPtr find(const std::vector<Number>& numbers) REQUIRES(mutex_);
  void estimate(const Graph& graph) REQUIRES(mutex_);
  bool must_compile(const Graph& graph, const tiers::Options& options) REQUIRES(mutex_);
  bool is_worth_compiling(const tiers::Options& options) const REQUIRES(mutex_);
  bool is_due(const tiers::Options& options) const REQUIRES(mutex_);
  void start_job(const Graph& graph, const std::string& name) REQUIRES(mutex_);
  // Gives the mutex up while it waits.
  VariantPtr finish(const Graph& graph, const std::string& name, bool alone) REQUIRES(mutex_);
  void note_numbers(const std::vector<Number>& numbers) REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<VariantPtr> variants_ GUARDED_BY(mutex_);  // the last used last
  Miss miss_ GUARDED_BY(mutex_);
  std::vector<Number> last_numbers_ GUARDED_BY(mutex_);
  std::vector<bool> changed_ GUARDED_BY(mutex_);  // numbers that differed between interpreted runs
  std::optional<tiers::Estimate> estimate_ GUARDED_BY(mutex_);
  bool took_over_ GUARDED_BY(mutex_) = false;  // a program that has run once
  bool interpretable_ GUARDED_BY(mutex_) = true;
  bool compilable_ GUARDED_BY(mutex_) = true;
};

// The process's table of structures, bounded by TORCH_XLA_MEMORY_PROGRAMS. The reference stays
// valid while the returned pointer is held.
std::shared_ptr<Structure> find_structure(const Graph& graph);

}  // namespace torch_xla
