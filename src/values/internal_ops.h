// Nodes for the operations of our own (lower/internal.h), Thread-safe.
#pragma once

#include "ir/node.h"
#include "sharding/sharding.h"

namespace torch_xla {

// Signatures that are kept without a node that has them.
constexpr size_t kMostInternalSignatures = size_t{1} << 13;

Value make_zeros(const TensorType& frame);
// `base` with `window` replaced by `update` read through `update_window`; the result is `frame`.
Value make_write(Value base, const Window& window, Value update, const Window& update_window,
                 const TensorType& frame);
// `base`, lying on the devices as said (sharding/).
Value make_sharding(Value base, ShardingPtr sharding);
// What make_sharding() said if it made the value; else null.
ShardingPtr sharding_of_node(const Value& value);
// A piece as a value of its own inside a manually partitioned region, and back to the whole.
Value make_to_shard(Value whole, ShardingPtr sharding);
Value make_from_shard(Value piece, ShardingPtr sharding, const TensorType& whole);
// `window` of `base` as a dense row-major frame.
Value make_read(Value base, const Window& window);

bool is_dense_permutation(c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides);

}  // namespace torch_xla
