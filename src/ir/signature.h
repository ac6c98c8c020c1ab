// What is known about one call of an operator before any value is: its arguments, the windows of
// its operands, its outputs, and how it is lowered. Immutable once interned, so any thread may read
// it; it lives as long as a node, plan, program or summary has it.
#pragma once

#include "ir/types.h"

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace torch_xla {

// A tensor argument: position in Node::operands, or -1 for None.
struct OperandRef {
  int32_t index = -1;
  bool operator==(const OperandRef&) const = default;
};

// A number argument: position in Node::numbers. Its value belongs to the node, not to the
// signature, so that a changing number keeps the signature. A 0-d CPU tensor among xla tensors is
// a number too, of a dtype; `wrapped` if it was a Python number (weak in type promotion).
struct NumberRef {
  int32_t slot = -1;
  bool is_tensor = false;
  bool wrapped = false;
  DType dtype = DType::Double;
  bool operator==(const NumberRef&) const = default;
};

// One argument, by position in the operator's schema. Tensor lists (optional ones too) are vectors
// of OperandRef; number lists (Scalar[]) are vectors of NumberRef.
using Attribute = std::variant<std::monostate,           // None
                               bool,                     // bool
                               int64_t,                  // int, SymInt, memory format, layout
                               double,                   // float that must be static
                               std::string,              // str, Device
                               DType,                    // ScalarType
                               std::vector<int64_t>,     // int[], SymInt[]
                               std::vector<double>,      // float[]
                               std::vector<bool>,        // bool[]
                               OperandRef,               // Tensor, Tensor?
                               std::vector<OperandRef>,  // Tensor[], Tensor?[]
                               NumberRef,                // Scalar, float, 0-d CPU tensor
                               std::vector<NumberRef>>;  // Scalar[]

struct OutputSpec {
  bool defined = true;  // false: the operator returns None here
  DType dtype = DType::Float;
  Dims sizes;           // as the user sees the tensor
  Dims strides;         // of the tensor made for it; a dense permutation of `sizes`
  TensorType frame;     // the value the node yields: `sizes` in order of descending stride
  Dims frame_to_sizes;  // frame dimension i is dimension frame_to_sizes[i] of `sizes`
  bool operator==(const OutputSpec&) const = default;
};

// Of sizes, strides (a dense permutation) and dtype.
OutputSpec make_output_spec(DType dtype, c10::ArrayRef<int64_t> sizes,
                            c10::ArrayRef<int64_t> strides);

class LowerContext;
using LowerFunction = void (*)(LowerContext&);
struct Computation;

// Whether programs call ATen kernels: on one device also where these are faster; over several
// devices only where there is no other lowering, because a call is not partitioned.
enum class HostCalls : uint8_t { Never, IfNeeded, IfFaster };

// The first tier that applies, in this order (docs/architecture.md, "Lowering").
enum class Tier : uint8_t {
  Direct,         // `lower` appends StableHLO
  Decomposition,  // `computation` is inlined
  Host,           // an ATen kernel runs inside the program (host_ops/)
  Call,           // `computation` is a function of the module (pure/)
};

struct Signature {
  std::string op;  // functional form, "aten::add.Tensor"
  std::vector<Attribute> arguments;
  std::vector<Window> operands;            // parallel to Node::operands
  std::vector<OutputSpec> outputs;         // parallel to the node's values
  std::vector<Number::Kind> number_kinds;  // parallel to Node::numbers: of arguments, of windows
  bool random = false;  // last operand and last output are the generator's state (u64[2])
  uint64_t hash = 0;    // stable between processes

  Tier tier = Tier::Host;
  // Cheaper to compute again than to keep: element-wise work and changes of shape.
  bool cheap = false;
  LowerFunction lower = nullptr;
  std::shared_ptr<const Computation> computation;

  // Calls of its kernel (host_ops/host_ops.h, which guards it).
  mutable std::shared_ptr<void> kernel;
};
using SignaturePtr = std::shared_ptr<const Signature>;

// Of its operands, as their windows show them, and of its outputs' frames.
int64_t moved_bytes(const Signature& signature);

// The hash of a signature from its fields; sets and returns it.
uint64_t finish_signature(Signature& signature);

// The one signature that says this. Two that differ never have the same hash.
SignaturePtr intern(Signature signature);
// The interned one of this hash; null if nobody has it any more.
SignaturePtr find_signature(uint64_t hash);
size_t signature_count();

}  // namespace torch_xla
