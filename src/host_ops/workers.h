// The threads that run a program, as a kernel called from it may use them.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace torch_xla {

class Workers {
 public:
  virtual ~Workers() = default;
  virtual int64_t count() const = 0;
  // Runs the task later, on some thread or, if there is none, on this one.
  virtual void schedule(std::function<void()> task) = 0;
};

struct Range {
  int64_t start, length;
};

// 0 to `size` in at most `count` ranges whose starts are multiples of `grain`.
std::vector<Range> ranges(int64_t size, int64_t count, int64_t grain = 1);

// Runs 0 to count - 1, each once, on the calling thread and on workers that are free; returns when
// all are done, and throws the first error. Workers that never come are not waited for. Each call
// has one thread of OpenMP's: a second team of threads would compete with the workers.
void run_pieces(Workers& workers, size_t count, c10::function_ref<void(size_t)> run);

}  // namespace torch_xla
