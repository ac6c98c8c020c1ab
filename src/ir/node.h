// A recorded operation or a leaf. Nodes are immutable once published and form a DAG; a storage
// points at one output of one node. Reference counts are atomic, so nodes may be shared between
// threads; `visit` belongs to whoever holds the trace lock (storage/trace_lock.h).
#pragma once

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

// What a Data leaf stands for. The storage layer derives from it; graphs only pass it on.
struct Data {
  TensorType type;
  virtual ~Data() = default;
};

// A signature that is not interned: its nodes keep it alive, as their `data`.
struct OwnedSignature : Data {
  Signature signature;
};

struct Node : c10::intrusive_ptr_target {
  enum class Kind : uint8_t {
    Op,         // `signature` says what
    Data,       // `data` holds a buffer, now or soon
    Parameter,  // an input of a Computation; `data` knows its type
  };

  Kind kind = Kind::Op;
  uint32_t location = 0;  // base/location.h
  const Signature* signature = nullptr;
  c10::SmallVector<Value, 4> operands;
  c10::SmallVector<Number, 1> numbers;

  std::shared_ptr<Data> data;  // a leaf's; of an operation, the owner of an OwnedSignature

  struct Visit {
    uint64_t epoch = 0;
    uint32_t id = 0;
  };
  mutable Visit visit;

  const TensorType& type(uint32_t index) const {
    return kind == Kind::Op ? signature->outputs[index].frame : data->type;
  }

  ~Node() override;
  void release_resources() override;
};

inline const TensorType& Value::type() const { return node->type(index); }

NodePtr make_data_node(std::shared_ptr<Data> data);
NodePtr make_parameter_node(TensorType type);

}  // namespace torch_xla
