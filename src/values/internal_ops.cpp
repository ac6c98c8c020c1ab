#include "values/internal_ops.h"

#include "base/hasher.h"
#include "base/location.h"
#include "ir/window.h"
#include "lower/internal.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <numeric>
#include <unordered_map>

namespace torch_xla {

namespace {

void add_dims(Hasher& hasher, c10::ArrayRef<int64_t> dims) {
  hasher.add(dims.size());
  for (int64_t dim : dims) {
    hasher.add(static_cast<uint64_t>(dim));
  }
}

struct AttributeHasher {
  Hasher& hasher;
  void operator()(std::monostate) { hasher.add(uint64_t{0}); }
  void operator()(bool v) { hasher.add(uint64_t{v}); }
  void operator()(int64_t v) { hasher.add(static_cast<uint64_t>(v)); }
  void operator()(double v) { hasher.add(std::bit_cast<uint64_t>(v)); }
  void operator()(const std::string& v) { hasher.add(std::string_view(v)); }
  void operator()(DType v) { hasher.add(static_cast<uint64_t>(v)); }
  void operator()(OperandRef v) { hasher.add(static_cast<uint64_t>(v.index)); }
  void operator()(NumberRef v) {
    hasher.add(static_cast<uint64_t>(v.slot));
    hasher.add(static_cast<uint64_t>(v.dtype) * 4 + v.is_tensor * 2 + v.wrapped);
  }
  template <typename T>
  void operator()(const std::vector<T>& list) {
    hasher.add(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      (*this)(static_cast<T>(list[i]));
    }
  }
};

// Interned by hash: 64 bits over at most some ten thousand signatures.
const Signature* intern(Signature signature) {
  static auto* mutex = new std::mutex;
  static auto* table = new std::unordered_map<uint64_t, std::unique_ptr<Signature>>;
  uint64_t hash = finish_signature(signature);
  std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<Signature>& slot = (*table)[hash];
  if (!slot) {
    slot = std::make_unique<Signature>(std::move(signature));
  }
  return slot.get();
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
  NodePtr node = c10::make_intrusive<Node>();
  for (const Number& start : number_starts(signature)) {
    node->numbers.push_back(start);
  }
  node->signature = intern(std::move(signature));
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

OutputSpec make_output_spec(DType dtype, c10::ArrayRef<int64_t> sizes,
                            c10::ArrayRef<int64_t> strides) {
  OutputSpec spec;
  spec.dtype = dtype;
  spec.sizes.assign(sizes.begin(), sizes.end());
  spec.strides.assign(strides.begin(), strides.end());
  spec.frame_to_sizes.resize(sizes.size());
  std::iota(spec.frame_to_sizes.begin(), spec.frame_to_sizes.end(), 0);
  bool row_major = true;
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    row_major = row_major && (sizes[i] == 1 || strides[i] == stride);
    stride *= sizes[i];
  }
  if (!row_major && product(sizes) > 0) {
    std::stable_sort(spec.frame_to_sizes.begin(), spec.frame_to_sizes.end(),
                     [&](int64_t x, int64_t y) { return strides[x] > strides[y]; });
  }
  spec.frame.dtype = dtype;
  for (int64_t dim : spec.frame_to_sizes) {
    spec.frame.dims.push_back(sizes[dim]);
  }
  return spec;
}

uint64_t finish_signature(Signature& signature) {
  Hasher hasher;
  hasher.add(std::string_view(signature.op));
  for (const Attribute& argument : signature.arguments) {
    hasher.add(argument.index());
    std::visit(AttributeHasher{hasher}, argument);
  }
  for (const Window& window : signature.operands) {
    hasher.add(static_cast<uint64_t>(window.dtype));
    add_dims(hasher, window.sizes);
    add_dims(hasher, window.strides);
    hasher.add(static_cast<uint64_t>(window.offset));
    hasher.add(static_cast<uint64_t>(window.extent) * 4 + static_cast<uint64_t>(window.lies));
  }
  for (const OutputSpec& output : signature.outputs) {
    hasher.add(static_cast<uint64_t>(output.dtype) * 2 + output.defined);
    add_dims(hasher, output.sizes);
    add_dims(hasher, output.strides);
    add_dims(hasher, output.frame.dims);
  }
  for (Number::Kind kind : signature.number_kinds) {
    hasher.add(static_cast<uint64_t>(kind));
  }
  hasher.add(static_cast<uint64_t>(signature.random) + 2 * static_cast<uint64_t>(signature.tier));
  signature.hash = hasher.low();
  return signature.hash;
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
  const Signature* signature = value.node->signature;
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
