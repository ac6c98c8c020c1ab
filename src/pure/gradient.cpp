#include "pure/gradient.h"

#include "pure/pure_function.h"
#include "pure/record.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

namespace torch_xla {

namespace {

namespace autograd = torch::autograd;

// Takes the hooks of closed-over tensors away while the trace runs through them.
class WithoutHooks {
 public:
  explicit WithoutHooks(const autograd::edge_list& edges) {
    for (const autograd::Edge& edge : edges) {
      autograd::Node& function = *edge.function;
      taken_.push_back({&function, std::move(function.tensor_pre_hooks()),
                        std::move(function.retains_grad_hooks())});
      function.tensor_pre_hooks().clear();
      function.retains_grad_hooks().clear();
    }
  }
  ~WithoutHooks() {
    // In reverse: of a node that comes twice, the first holds its hooks.
    for (size_t i = taken_.size(); i-- > 0;) {
      taken_[i].function->tensor_pre_hooks() = std::move(taken_[i].hooks);
      taken_[i].function->retains_grad_hooks() = std::move(taken_[i].retaining);
    }
  }
  WithoutHooks(const WithoutHooks&) = delete;
  WithoutHooks& operator=(const WithoutHooks&) = delete;

 private:
  struct Taken {
    autograd::Node* function;
    std::vector<std::unique_ptr<autograd::FunctionPreHook>> hooks;
    std::unordered_map<size_t, std::unique_ptr<autograd::FunctionPreHook>> retaining;
  };
  std::vector<Taken> taken_;
};

autograd::edge_list edges_of(const Tensors& tensors) {
  autograd::edge_list edges;
  for (const at::Tensor& tensor : tensors) {
    edges.push_back(autograd::impl::gradient_edge(tensor));
  }
  return edges;
}

// The function and its gradient, run again for the gradient's own gradient.
class DifferentiatedCallee : public PureCallee {
 public:
  DifferentiatedCallee(const EntryPtr& entry, size_t arguments)
      : weak_(entry), arguments_(arguments) {}

  Tensors run(const Tensors& inputs) override {
    EntryPtr entry = weak_.lock();
    TORCH_CHECK(entry,
                "the trace of an assume_pure function was dropped from its cache before "
                "its gradient was differentiated again");
    at::AutoGradMode with_grad(true);
    auto split = inputs.begin() + static_cast<std::ptrdiff_t>(arguments_);
    Tensors arguments(inputs.begin(), split);
    Tensors outputs = entry->callee->run(arguments);
    Tensors results, sources;
    for (int32_t tangent : entry->gradient->tangents) {
      results.push_back(outputs[tangent]);
    }
    for (const PureEntry::GradientInput& input : entry->gradient->inputs) {
      sources.push_back(input.argument >= 0 ? arguments[input.argument]
                        : input.result >= 0 ? outputs[input.result]
                                            : entry->handles[input.handle].place.find(arguments));
    }
    Tensors gradients = gradients_of(results, Tensors(split, inputs.end()), sources, true);
    Tensors defined;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (entry->gradient->inputs[i].output >= 0) {
        TORCH_CHECK(gradients[i].defined(), "the pure function ", entry->name,
                    " gave another gradient when it was run again");
        defined.push_back(gradients[i]);
      }
    }
    return defined;
  }

 private:
  std::weak_ptr<const PureEntry> weak_;  // the entry owns what owns this
  size_t arguments_;
};

}  // namespace

Tensors as_leaves(const Tensors& arguments) {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> known;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages;
  Tensors leaves;
  for (const at::Tensor& argument : arguments) {
    at::Tensor& leaf = known[argument.unsafeGetTensorImpl()];
    if (!leaf.defined()) {
      c10::InferenceMode like_the_argument(argument.is_inference());
      leaf = argument.detach();
      c10::Storage& storage = storages[argument.storage().unsafeGetStorageImpl()];
      if (!storage) {
        storage = share_storage(argument.storage());
      }
      leaf.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
      if (argument.requires_grad()) {
        leaf.set_requires_grad(true);
      }
    }
    leaves.push_back(leaf);
  }
  return leaves;
}

Tensors gradients_of(const Tensors& results, const Tensors& tangents, const Tensors& inputs,
                     bool create_graph) {
  autograd::edge_list targets = edges_of(inputs);
  WithoutHooks guard(targets);
  return autograd::Engine::get_default_engine().execute(edges_of(results), tangents,
                                                        /*keep_graph=*/true, create_graph,
                                                        /*accumulate_grad=*/false, targets);
}

Tensors differentiate(const EntryPtr& entry, const Tensors& arguments, const Tensors& tangents) {
  for (const PureEntry::GradientInput& input : entry->gradient->inputs) {
    TORCH_CHECK(input.result < 0, "the pure function ", entry->name,
                " calls requires_grad_() of a tensor that it made and returns, and cannot be "
                "differentiated twice (create_graph=True): pass that tensor as an argument");
  }
  Tensors inputs = arguments;
  inputs.insert(inputs.end(), tangents.begin(), tangents.end());
  Tensors defined = derivative_of(entry).call(
      0, inputs, [&] { return std::make_shared<DifferentiatedCallee>(entry, arguments.size()); });
  Tensors gradients;
  size_t next = 0;
  for (const PureEntry::GradientInput& input : entry->gradient->inputs) {
    gradients.push_back(input.output >= 0 ? defined[next++] : at::Tensor());
  }
  return gradients;
}

}  // namespace torch_xla
