// A recorded operation or a leaf. Nodes are immutable once published and form a DAG; a storage
// points at one output of one node. Reference counts are atomic, so nodes may be shared between
// threads.
#pragma once

#include "base/pool.h"
#include "base/trace_lock.h"
#include "ir/signature.h"

#include <c10/util/intrusive_ptr.h>

namespace torch_xla {

struct Node;
using NodePtr = c10::intrusive_ptr<Node>;

// Output `index` of `node`.
struct Value {
  NodePtr node;
  uint32_t index = 0;

  explicit operator bool() const { return static_cast<bool>(node); }
  const TensorType& type() const;
  bool operator==(const Value& other) const { return node == other.node && index == other.index; }
};

struct Node : c10::intrusive_ptr_target {
  enum class Kind : uint8_t {
    Op,         // `signature` says what
    Data,       // a leaf that has a buffer, now or soon: the storage layer derives from Node
    Parameter,  // an input of a Computation
  };

  Kind kind = Kind::Op;
  uint32_t location = 0;  // base/location.h
  uint64_t serial = 0;    // of operations: more than that of any recorded before
  SignaturePtr signature;
  const TensorType* leaf_type = nullptr;  // of what is no operation
  c10::SmallVector<Value, 4> operands;
  c10::SmallVector<Number, 1> numbers;

  struct Visit {
    uint64_t epoch = 0;
    uint32_t id = 0;
  };
  mutable Visit visit GUARDED_BY(trace_mutex);

  const TensorType& type(uint32_t index) const {
    return kind == Kind::Op ? signature->outputs[index].frame : *leaf_type;
  }

  ~Node() override;
  void release_resources() override;
  POOLED(Node)
};

inline const TensorType& Value::type() const { return node->type(index); }

// An operation that is recorded now.
NodePtr new_operation();
NodePtr make_parameter_node(TensorType type);

}  // namespace torch_xla
