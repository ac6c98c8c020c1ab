// What is known of a pure function after tracing it for one kind of call: the computations, and how
// the storages and tensors of a call are wired to them. Immutable once made.
#pragma once

#include "ir/graph.h"
#include "trace/scope.h"
#include "trace/tensor.h"

#include <memory>
#include <mutex>
#include <optional>

namespace torch_xla {

using Tensors = std::vector<at::Tensor>;
using Words = c10::SmallVector<uint64_t, 64>;
using TensorWords = c10::SmallVector<uint64_t, 6>;  // of one tensor; steps compare thousands

// The user's function over a flat list of tensors, for one set of static arguments. Kept by
// entries, because gradients of gradients run it again. Called without locks.
class PureCallee {
 public:
  virtual ~PureCallee() = default;
  virtual Tensors run(const Tensors& arguments) = 0;
  // After run(): what the front end wants kept with the trace (the structure of the results).
  virtual std::shared_ptr<void> annotation() { return nullptr; }
};

class PureFunction;
struct LaunchPlan;

struct PureEntry {
  // One operand of the forward call: a storage.
  struct Input {
    int32_t argument = -1;    // the first argument on it,
    int32_t handle = -1;      // or a closed-over tensor on it,
    at::Generator generator;  // or the generator whose state it is
    StatePtr state;           // or one without a tensor (then the entry is transient)
    int32_t written = -1;     // the forward's output that is its new value
  };
  // A tensor that a call finds by itself: a closed-over one, or the gradient of a leaf.
  struct Place {
    at::Tensor tensor;
    int32_t argument = -1;  // or this argument
    bool gradient = false;  // its `grad`

    const at::Tensor& owner(const Tensors& arguments) const {
      return argument >= 0 ? arguments[argument] : tensor;
    }
    // As it is now; undefined for a leaf without gradient, and for what is no leaf.
    const at::Tensor& find(const Tensors& arguments) const {
      const at::Tensor& found = owner(arguments);
      if (!gradient) {
        return found;
      }
      static const at::Tensor none;
      return found.is_leaf() ? found.grad() : none;
    }
  };
  // A closed-over tensor, read anew at each call; `key` is what the trace relied on.
  struct Handle {
    Place place;
    TensorWords key;
    int32_t input = -1;  // the input whose storage it is on
  };
  // What a call does to a leaf's `grad`, beyond writing to it in place. An argument that is no leaf
  // passes what a pass inside finds on to what it was made of.
  struct GradientWrite {
    Place leaf;
    int32_t result = -1;  // it becomes this result, or nothing
  };
  struct ResultStorage {
    uint32_t output = 0;
    int64_t nbytes = 0;
  };
  // What a view shows of a storage.
  struct Window {
    Dims sizes, strides;
    int64_t offset = 0;
  };
  struct Result {
    enum class Kind : uint8_t {
      New,       // on result storage `index`
      Argument,  // argument `index` itself
      Handle,    // closed-over tensor `index` itself
      ArgumentView,
      HandleView,
    };
    Kind kind = Kind::New;
    int32_t index = 0;
    int32_t same = -1;  // an earlier result that is the same tensor
    DType dtype = DType::Float;
    Dims sizes, strides;
    int64_t offset = 0;
    bool requires_grad = false;
    bool leaf = false;               // a new one, told to require gradients
    bool spoilt = false;             // a part of unbind() or split() whose base was written since
    bool conj = false, neg = false;  // PyTorch's lazy bits
    std::vector<Window> through;     // of views: no gradient reaches what lies beside one of these
  };
  // A tensor that gradients flow into.
  struct GradientInput {
    int32_t argument = -1, handle = -1;
    int32_t result = -1;  // a leaf that the call itself makes
    int32_t output = -1;  // of the backward; -1: no gradient
    DType dtype = DType::Float;
    Dims sizes, strides;
  };
  struct Saved {
    int32_t input = -1;   // the value that input had, or
    uint32_t output = 0;  // this output of the forward
  };
  // A result whose gradient cannot be had: whoever asks for it gets PyTorch's reason.
  struct Refused {
    int32_t result;
    std::string reason;
  };
  struct Gradient {
    std::shared_ptr<const Signature> backward;  // operands: saved, constants, tangents
    std::vector<Saved> saved;
    std::vector<int32_t> tangents;  // results
    std::vector<Refused> refused;
    std::vector<GradientInput> inputs;
  };

  std::string name;
  int device = 0;
  uint64_t hash = 0;
  Words key;
  std::shared_ptr<const Signature> forward;  // operands: inputs, constants
  std::vector<Input> inputs;
  std::vector<StatePtr> constants;
  std::vector<Handle> handles;
  std::vector<ResultStorage> storages;
  std::vector<Result> results;
  size_t returned = 0;  // the results that the function returns come first
  std::vector<GradientWrite> gradient_writes;
  std::vector<Place> without_gradient;  // leaves that had none, where that matters
  std::vector<int32_t> marked;          // arguments told to require gradients
  std::unique_ptr<Gradient> gradient;   // null: nothing to differentiate
  std::shared_ptr<PureCallee> callee;
  // Made when a gradient is differentiated (pure_function.h, derivative_of).
  struct Derivative {
    std::once_flag made;
    std::unique_ptr<PureFunction> function;
    Derivative();
    ~Derivative();
  };
  mutable Derivative derivative;
  // How the call last ran as a program of its own (pure/launch.cpp).
  mutable std::shared_ptr<LaunchPlan> plan GUARDED_BY(trace_mutex);
  // It changes parameters, as a training step does: such a call is launched at once where nothing
  // is pending, since nothing will be fused with it.
  bool trains = false;
  // It found a tensor of the trace around it, and must not be used outside of that.
  bool transient = false;
  std::shared_ptr<void> annotation;
};
using EntryPtr = std::shared_ptr<const PureEntry>;

// The numbers that a trace does not fix, in the order in which it met them.
using CallNumbers = std::vector<double>;

// Calls the traced computation: one node for the forward, and one more when a gradient asks for it.
// In eager mode, or where it trains, it is compiled and run here. Any thread; without locks, and
// then, or where it writes gradients, which may go on into a graph outside, without the GIL.
Tensors call_entry(const EntryPtr& entry, const Tensors& arguments,
                   const CallNumbers& numbers = {});

// The same as a program of its own, launched at once without recording anything; compiled first if
// need be; what is pending runs before. Nothing where that cannot be done: when the call wants
// gradients, is inside a trace, reads what was never written, or runs on several devices. Any
// thread, without locks and the GIL.
enum class Pending { RunsBefore, Declines };  // what else is to be run
std::optional<Tensors> launch_entry(const EntryPtr& entry, const Tensors& arguments,
                                    const CallNumbers& numbers = {},
                                    Pending pending = Pending::RunsBefore);

}  // namespace torch_xla
