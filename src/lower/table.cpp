#include "lower/table.h"

namespace torch_xla {

const LowerTable& lower_table() {
  static const LowerTable* table = [] {
    auto* entries = new LowerTable;
    register_elementwise(*entries);
    register_reduce(*entries);
    register_matmul(*entries);
    register_activation(*entries);
    register_shape(*entries);
    register_factory(*entries);
    register_index(*entries);
    register_sort(*entries);
    register_norm(*entries);
    register_convolution(*entries);
    register_random(*entries);
    register_pool(*entries);
    register_linalg(*entries);
    register_optimizer(*entries);
    return entries;
  }();
  return *table;
}

}  // namespace torch_xla
