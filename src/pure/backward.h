// The autograd node of a pure call: what it keeps for the gradient, and the gradient's own call.
#pragma once

#include "pure/entry.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace torch_xla {

// The forward's values that the backward uses. As PyTorch does for saved tensors, a kept argument
// that is changed in place afterwards is an error, and saved-tensor hooks see every value.
class SavedValues {
 public:
  SavedValues(const PureEntry& entry, const Tensors& arguments);

  // Right after the forward node was made.
  void fill(const PureEntry& entry, const NodePtr& forward) REQUIRES(trace_mutex);
  // Hands the values to the saved-tensor hooks, if there are any.
  void pack();
  // The storages that hold the values; throws when one has changed since.
  std::vector<StatePtr> unpack(const PureEntry& entry);

  // The values that written inputs had before the call, parallel to PureEntry::inputs.
  const std::vector<StatePtr>& former() const { return former_; }

 private:
  struct Item {
    StatePtr state;
    c10::VariableVersion version;
    uint32_t expected = 0;
    bool checked = false;
    at::Tensor tensor;  // only with hooks
  };
  std::vector<Item> items_;
  std::vector<StatePtr> former_;
  bool hooks_ = false;
  std::vector<torch::autograd::SavedVariable> packed_;
};

class PureBackward : public torch::autograd::Node {
 public:
  PureBackward(EntryPtr entry, const Tensors& arguments, const CallNumbers& numbers);

  SavedValues& saved() { return *saved_; }
  // Leaves that the call itself made take part in the graph from here on.
  void lead_to_leaves(const Tensors& results);
  std::string name() const override;
  void release_variables() override;

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  Tensors run(const Tensors& tangents);
  Tensors record(const std::vector<StatePtr>& saved, const Tensors& tangents);
  // Differentiable in turn, for create_graph=True.
  Tensors differentiate(const Tensors& tangents);

  EntryPtr entry_;
  Tensors arguments_;
  const CallNumbers numbers_;
  std::unique_ptr<SavedValues> saved_;  // guarded by the node's own mutex, which is PyTorch's
};

// A node whose edges lead to the arguments and closed-over tensors that need gradients.
c10::intrusive_ptr<PureBackward> make_backward(const EntryPtr& entry, const Tensors& arguments,
                                               const CallNumbers& numbers);

// Makes the node the history of a result.
void connect(const at::Tensor& result, const c10::intrusive_ptr<PureBackward>& node);
// Makes an error the history of a result: who asks for gradients through it, to where the node
// leads, gets the reason.
void connect_to_error(const at::Tensor& result, const std::string& reason,
                      const PureBackward& node);

}  // namespace torch_xla
