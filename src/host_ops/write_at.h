// Writes at indices, which XLA-CPU does one after another on one thread. Where all parts are one,
// it does so as fast as this. Stateless; from any thread.
#pragma once

#include "host_ops/workers.h"
#include "lower/combine.h"

#include <c10/core/ScalarType.h>

namespace torch_xla {

// Of a dense result [outer][size][inner], `count` slices of each of its `outer` parts are combined
// with updates [outer][count][inner].
struct WritesAt {
  int64_t outer = 0, size = 0, inner = 0, count = 0;
  const int64_t* index = nullptr;  // those out of range write nowhere
  bool of_each = false;            // an index for each number of the updates, not for each slice
};

// In the order of the indices, whatever the number of threads. is_written_by_host(combine, dtype).
void write_at(Workers& workers, const WritesAt& writes, Combine combine, at::ScalarType dtype,
              const void* updates, void* result);

}  // namespace torch_xla
