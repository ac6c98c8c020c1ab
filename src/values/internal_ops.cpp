#include "values/internal_ops.h"

#include "base/location.h"
#include "base/mutex.h"
#include "base/recent_map.h"
#include "ir/window.h"
#include "lower/internal.h"

#include <algorithm>
#include <numeric>

namespace torch_xla {

namespace {

// The node's, kept while such operations are recorded.
SignaturePtr recent_signature(Signature signature) {
  static Mutex mutex;
  static auto* recent = new RecentMap<uint64_t, SignaturePtr>(kMostInternalSignatures);
  SignaturePtr interned = intern(std::move(signature));
  MutexLock lock(mutex);
  return recent->get_or_add(interned->hash, interned);
}

Signature internal_signature(const char* op, LowerFunction lower, OutputSpec output) {
  Signature signature;
  signature.op = op;
  signature.tier = Tier::Direct;
  signature.lower = lower;
  signature.cheap = true;
  signature.outputs.push_back(std::move(output));
  return signature;
}

Value make_node(Signature signature, std::initializer_list<Value> operands) {
  NodePtr node = new_operation();
  for (const Number& start : number_starts(signature)) {
    node->numbers.push_back(start);
  }
  node->signature = recent_signature(std::move(signature));
  node->operands.assign(operands.begin(), operands.end());
  node->location = last_location();
  return {std::move(node), 0};
}

OutputSpec row_major_spec(DType dtype, c10::ArrayRef<int64_t> sizes) {
  return make_output_spec(dtype, sizes, row_major_strides(sizes));
}

}  // namespace

bool is_dense_permutation(c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides) {
  Dims order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t x, int64_t y) { return strides[x] < strides[y]; });
  int64_t expected = 1;
  for (int64_t dim : order) {
    if (sizes[dim] == 1) {
      continue;
    }
    if (strides[dim] != expected) {
      return product(sizes) == 0;
    }
    expected *= sizes[dim];
  }
  return true;
}

Value make_zeros(const TensorType& frame) {
  return make_node(
      internal_signature("xla::zeros", lower_zeros, row_major_spec(frame.dtype, frame.dims)), {});
}

Value make_write(Value base, const Window& window, Value update, const Window& update_window,
                 const TensorType& frame) {
  Signature signature =
      internal_signature("xla::write", lower_write, row_major_spec(frame.dtype, frame.dims));
  signature.operands = {window, update_window};
  return make_node(std::move(signature), {std::move(base), std::move(update)});
}

Value make_read(Value base, const Window& window) {
  Signature signature =
      internal_signature("xla::read", lower_read, row_major_spec(window.dtype, window.sizes));
  signature.operands = {window};
  return make_node(std::move(signature), {std::move(base)});
}

namespace {

// op(base, sharding) -> result
Value make_sharding_node(const char* op, LowerFunction lower, Value base, ShardingPtr sharding,
                         const TensorType& result) {
  Signature signature = internal_signature(op, lower, row_major_spec(result.dtype, result.dims));
  const TensorType& type = base.type();
  signature.operands = {{type.dtype, type.dims, row_major_strides(type.dims), 0}};
  signature.arguments = {OperandRef{0}, sharding->text()};
  return make_node(std::move(signature), {std::move(base)});
}

}  // namespace

Value make_sharding(Value base, ShardingPtr sharding) {
  TensorType type = base.type();
  return make_sharding_node("xla::mark_sharding", lower_mark_sharding, std::move(base), sharding,
                            type);
}

ShardingPtr sharding_of_node(const Value& value) {
  const Signature* signature = value.node->signature.get();
  return signature != nullptr && signature->lower == &lower_mark_sharding
             ? Sharding::parse(std::get<std::string>(signature->arguments[1]))
             : nullptr;
}

Value make_to_shard(Value whole, ShardingPtr sharding) {
  TensorType piece{whole.type().dtype, sharding->shard_dims(whole.type().dims)};
  return make_sharding_node("xla::to_shard", lower_to_shard, std::move(whole), sharding, piece);
}

Value make_from_shard(Value piece, ShardingPtr sharding, const TensorType& whole) {
  return make_sharding_node("xla::from_shard", lower_from_shard, std::move(piece), sharding, whole);
}

}  // namespace torch_xla
