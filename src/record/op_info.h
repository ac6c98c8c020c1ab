// What the recorder needs to know of an operator, worked out once from its schema. Immutable; kept
// for the life of the process; safe from any thread.
#pragma once

#include "base/mutex.h"
#include "eager/host_call.h"
#include "lower/table.h"
#include "metrics/metrics.h"
#include "record/host_indices.h"
#include "record/moving.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace torch_xla {

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle& op);

  const uint64_t serial;  // of all there have been
  c10::OperatorHandle op;
  std::string name;  // "aten::add_.Tensor"

  // The operator that computes the same without mutating: `op` itself when it mutates nothing, or
  // when nothing in the registry does (then only a host call can run it, on copies).
  c10::OperatorHandle functional;
  std::string functional_name;
  // Per argument of `functional`: the argument of `op` it takes, or -1 for an option (dtype,
  // device, ...) to be taken from the first mutated argument.
  std::vector<int> argument_source;

  std::vector<bool> scalar_arguments;  // per argument of `op`: Scalar or Scalar?
  std::vector<size_t> mutated;         // arguments of `op` it writes to
  std::vector<int> return_alias;  // per return of `op`: the argument it is, or -1 for a new one
  bool has_functional = true;
  bool resizes_outputs = false;  // out= overload
  bool resizes_state = false;    // writes arguments that are neither out= nor its own value
  bool returns_view = false;     // of an argument it does not write to
  bool only_tensor_returns = true;
  bool mutates() const { return !mutated.empty(); }

  const LowerEntry* lowering = nullptr;
  bool static_numbers = false;
  bool shape_only_self = false;
  MovingRule moving = nullptr;
  SliceArguments slice;                 // of a slice
  bool random = false;                  // draws from the device's generator
  bool dynamic_shape = false;           // output sizes depend on values
  bool has_indices = false;             // arguments[1] or [2] are places in arguments[0], or masks
  const PlaceRule* places = nullptr;    // what is checked where the host knows them
  bool takes_cpu_tensors = false;       // indices, and what arithmetic is done with
  eager::HostOperator host;             // how eager mode runs it on host memory
  metrics::Counter* counter = nullptr;  // xla::<op> or aten::<op>
};

OpInfo& op_info(const c10::OperatorHandle& op);

}  // namespace torch_xla
