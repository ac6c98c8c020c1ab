// Work on the threads that PyTorch's kernels have where they are called. PyTorch's at::parallel_for
// would do it on one: its header has more of them only in files that are compiled for OpenMP.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace torch_xla {

// Runs parts (begin, end) of 0 to `count`, of at least `grain` each but for the last, and throws
// one of their errors when all are done.
void run_in_team(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> run);

}  // namespace torch_xla
