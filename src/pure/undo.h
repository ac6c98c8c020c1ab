// Taking back what a part of a trace has written, where a value of the device says so: a step whose
// gradients overflow must change nothing, and whether they did is known on the device alone.
// Of one thread; without locks.
#pragma once

#include "trace/scope.h"

#include <vector>

namespace torch_xla {

class WriteMark {
 public:
  // From here on, in the calling thread's trace.
  WriteMark();

  // Where `flag` (a bool without dimensions) is true, whatever was written since has the value that
  // it had.
  void undo_where(const at::Tensor& flag) const;

 private:
  struct Known {
    StatePtr state;
    Value value;
  };
  struct Written {
    StatePtr state;
    Value before, after;
  };
  std::vector<Written> written() const REQUIRES(trace_mutex);

  ScopePtr scope_;
  std::vector<Value> outside_;  // of the storages from outside that the trace had met
  std::vector<Known> own_;      // of its own storages
};

}  // namespace torch_xla
