// From a finished trace to the entry that repeats it: which storages go in and come out, and the
// graph split into forward and backward.
#pragma once

#include "pure/entry.h"

#include <set>

namespace torch_xla {

struct Trace {
  ScopePtr scope;
  Tensors arguments;  // as the function saw them
  size_t argument_storages = 0;
  Tensors results;

  struct Source {
    int32_t argument = -1;  // or a closed-over tensor, or a result that is a leaf:
    at::Tensor tensor;
    int32_t result = -1;
  };
  std::vector<Source> sources;          // what gradients flow to
  std::vector<int32_t> differentiable;  // results they come from
  std::vector<PureEntry::Refused> refused;
  std::set<size_t> spoilt;  // results of which PyTorch tells nothing any more
  Tensors tangents;         // parallel to `differentiable`
  Tensors gradients;        // parallel to `sources`
  // Leaves whose gradients the function may have changed.
  struct Leaf {
    PureEntry::Place place;
    at::Tensor before;
    bool changed = false;
    int32_t result = -1;  // what it became, or nothing
  };
  std::vector<Leaf> leaves;
  size_t returned = 0;          // results that the function returned; gradients follow
  std::vector<int32_t> marked;  // arguments that the function told to require gradients
};

// Is it an argument, or derived from one by the trace?
bool is_made_of_argument(const Trace& trace, const at::Tensor& tensor);

// PyTorch may mark bytes so too, of whose gradient nothing can be asked: what a call returns of
// them requires none.
bool can_require_grad(const at::Tensor& result);

// A graph as a function of modules.
std::shared_ptr<Computation> make_computation(const std::string& name, Graph graph);

// The signature of a node that runs a computation on whole storages of these
// types, and gives it so many numbers.
std::shared_ptr<const Signature> call_signature(const std::string& op,
                                                std::shared_ptr<const Computation> computation,
                                                const std::vector<TensorType>& operands,
                                                const std::vector<TensorType>& outputs,
                                                size_t numbers = 0);

// Takes the trace lock. Refuses what cannot be repeated.
std::shared_ptr<PureEntry> wire_entry(const std::string& name, const Trace& trace,
                                      const Tensors& arguments);

}  // namespace torch_xla
