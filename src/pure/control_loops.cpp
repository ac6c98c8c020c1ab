// Loops. The gradient of a scan is a scan in the other direction, over what the first one kept;
// that of a while loop is that of the scan which runs as often.
#include "base/error.h"
#include "base/location.h"
#include "pure/control.h"
#include "pure/control_gradient.h"
#include "pure/record.h"
#include "trace/region.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace torch_xla {

namespace {

using Role = PartArguments::Role;

std::string description(const at::Tensor& tensor) {
  return std::string(c10::toString(tensor.scalar_type())) + c10::str(tensor.sizes());
}

// Carried values must stay what they are: a loop has one program for all its iterations.
void check_carried(const PureEntry& body, const Tensors& init) {
  if (body.results.size() < init.size()) {
    throw Error("the loop body " + body.name + " (at " + location_of(last_location()).str() +
                ") returns " + std::to_string(body.results.size()) + " tensors, but " +
                std::to_string(init.size()) + " are carried from iteration to iteration");
  }
  for (size_t i = 0; i < init.size(); ++i) {
    const PureEntry::Result& result = body.results[i];
    if (result.dtype != init[i].scalar_type() ||
        c10::IntArrayRef(result.sizes) != init[i].sizes()) {
      throw Error("the loop body " + body.name + " (at " + location_of(last_location()).str() +
                  ") returns a " + c10::toString(result.dtype) +
                  c10::str(c10::IntArrayRef(result.sizes)) + " in the place of carried tensor " +
                  std::to_string(i) + ", which is a " + description(init[i]) +
                  ": shapes and dtypes must stay the same, convert or pad the "
                  "initial value");
    }
  }
}

// The trace of a loop's body for any iteration: a carried value needs a gradient if its initial
// value does, or what an iteration puts in its place.
EntryPtr trace_body(const Subgraph& body, const ScanInputs& inputs) {
  const Tensors& init = inputs.init;
  const bool enabled = at::GradMode::is_enabled();
  std::vector<bool> needs_gradient;
  for (const at::Tensor& tensor : init) {
    needs_gradient.push_back(enabled && tensor.requires_grad());
  }
  while (true) {
    Tensors examples;
    for (size_t i = 0; i < init.size(); ++i) {
      examples.push_back(make_example(init[i], init[i].sizes(), needs_gradient[i]));
    }
    for (const at::Tensor& stack : inputs.stacks) {
      examples.push_back(
          make_example(stack, stack.sizes().slice(1), enabled && stack.requires_grad()));
    }
    for (const at::Tensor& tensor : inputs.same) {
      examples.push_back(make_example(tensor, tensor.sizes(), enabled && tensor.requires_grad()));
    }
    EntryPtr entry = unchanging(body(examples));
    check_carried(*entry, init);
    bool changed = false;
    for (size_t i = 0; i < init.size(); ++i) {
      changed = changed || (entry->results[i].requires_grad && !needs_gradient[i]);
      needs_gradient[i] = needs_gradient[i] || entry->results[i].requires_grad;
    }
    if (!changed) {
      return entry;
    }
  }
}

class Scan : public ControlFlow {
 public:
  Scan(EntryPtr body, const ScanInputs& inputs)
      : body_(std::move(body)),
        carried_(inputs.init.size()),
        sliced_(inputs.stacks.size()),
        same_(inputs.same.size()),
        length_(inputs.length),
        reverse_(inputs.reverse),
        places_(places_of_saved(*body_, [&](int32_t i) { return role_of(i) != Role::kCarried; })) {
    for (size_t i = 0; i < body_->results.size(); ++i) {
      if (i >= carried_ || !stays(i)) {
        results_.push_back(i);
      }
    }
  }

  // The body's arguments, and the closed-over tensors that need gradients.
  Tensors inputs(const ScanInputs& given) const {
    Tensors inputs = given.init;
    inputs.insert(inputs.end(), given.stacks.begin(), given.stacks.end());
    inputs.insert(inputs.end(), given.same.begin(), given.same.end());
    if (body_->gradient) {
      for (const PureEntry::GradientInput& input : body_->gradient->inputs) {
        if (input.handle >= 0) {
          inputs.push_back(body_->handles[input.handle].place.tensor);
        }
      }
    }
    return inputs;
  }

  Tensors forward(const Tensors& inputs, Tensors& saved) override {
    PartArguments arguments;
    std::vector<PartArguments::Place> order;  // of the body's arguments
    for (size_t i = 0; i < argument_count(); ++i) {
      order.push_back(arguments.add(role_of(static_cast<int32_t>(i)), inputs[i]));
    }
    Tensors results = run(arguments, reverse_, [&](const Tensors& values) {
      const Tensors all = call_with_saved(*body_, arguments.get(values, order), places_);
      Tensors changing;
      for (size_t i : results_) {
        changing.push_back(all[i]);
      }
      changing.insert(changing.end(),
                      all.begin() + static_cast<std::ptrdiff_t>(body_->results.size()), all.end());
      return owned(changing);
    });
    size_t next = results_.size();
    for (size_t i = 0; i < places_.size(); ++i) {
      saved.push_back(places_[i].argument >= 0 ? inputs[places_[i].argument]
                      : places_[i].handle >= 0 ? saved_handle(*body_, i)
                                               : results[next++]);
    }
    results.resize(results_.size());
    return results;
  }

  Tensors backward(const Tensors& saved, const Tensors& gradients) override {
    const PureEntry::Gradient& gradient = *body_->gradient;
    const Reverse reverse = arrange(saved, gradients);
    auto iteration = [&](const Tensors& values) {
      Tensors found = call_backward(*body_, reverse.arguments.get(values, reverse.saved),
                                    reverse.arguments.get(values, reverse.tangents));
      for (size_t i = 0; i < found.size(); ++i) {
        if (is_summed(gradient.inputs[i])) {
          found[i] = reverse.arguments.get(values, reverse.totals[i]) + found[i];
        }
      }
      return owned(in_order(found));
    };
    return by_input(run(reverse.arguments, !reverse_, iteration));
  }

  bool needs_gradient(size_t result) const override {
    return body_->results[results_[result]].requires_grad;
  }
  const std::string& name() const override { return body_->name; }

  // All results, given those of the node and the initial values.
  Tensors with_what_stays(const Tensors& found, const Tensors& init) const {
    Tensors all(init);
    all.resize(body_->results.size());
    for (size_t i = 0; i < results_.size(); ++i) {
      all[results_[i]] = found[i];
    }
    return all;
  }

 private:
  // What an iteration of the backward gets. Carried: the gradients of what the forward carries, and
  // the sums of those of what is the same in all iterations.
  struct Reverse {
    PartArguments arguments;
    std::vector<PartArguments::Place> saved, tangents;
    std::vector<PartArguments::Place> totals;  // parallel to the gradient's inputs
  };

  Reverse arrange(const Tensors& saved, const Tensors& gradients) const {
    const PureEntry::Gradient& gradient = *body_->gradient;
    Reverse reverse;
    for (size_t i = 0; i < saved.size(); ++i) {
      const SavedPlace& place = places_[i];
      const Role role = place.is_result()     ? Role::kSliced
                        : place.argument >= 0 ? role_of(place.argument)
                                              : Role::kSame;
      reverse.saved.push_back(reverse.arguments.add(role, saved[i]));
    }
    Tensors of_result(body_->results.size());
    for (size_t i = 0; i < results_.size(); ++i) {
      of_result[results_[i]] = gradients[i];
    }
    std::vector<PartArguments::Place> carried(carried_);
    reverse.totals.resize(gradient.inputs.size());
    for (size_t i = 0; i < gradient.inputs.size(); ++i) {
      const PureEntry::GradientInput& input = gradient.inputs[i];
      if (is_carried(input)) {
        carried[input.argument] =
            reverse.arguments.add(Role::kCarried, dense(of_result[input.argument]));
      } else if (is_summed(input)) {
        const TensorType type{input.dtype, input.sizes};
        reverse.totals[i] = reverse.arguments.add(Role::kCarried, zeros_of(type, body_->device));
      }
    }
    for (int32_t result : gradient.tangents) {
      const auto i = static_cast<size_t>(result);
      reverse.tangents.push_back(
          i < carried_ ? carried[i] : reverse.arguments.add(Role::kSliced, dense(of_result[i])));
    }
    return reverse;
  }

  // Whether the body gives a carried value on as it is: then it is the same in all iterations.
  bool stays(size_t carried) const {
    const PureEntry::Result& result = body_->results[carried];
    return result.kind == PureEntry::Result::Kind::Argument &&
           static_cast<size_t>(result.index) == carried;
  }
  size_t argument_count() const { return carried_ + sliced_ + same_; }
  Role role_of(int32_t argument) const {
    const auto i = static_cast<size_t>(argument);
    if (i < carried_ && !stays(i)) {
      return Role::kCarried;
    }
    return i >= carried_ && i < carried_ + sliced_ ? Role::kSliced : Role::kSame;
  }
  bool is_carried(const PureEntry::GradientInput& input) const {
    return input.argument >= 0 && role_of(input.argument) == Role::kCarried;
  }
  bool is_summed(const PureEntry::GradientInput& input) const {
    return input.output >= 0 && (input.argument < 0 || role_of(input.argument) == Role::kSame);
  }

  Tensors run(const PartArguments& arguments, bool reverse,
              const std::function<Tensors(const Tensors&)>& iteration) const {
    Control control;
    control.kind = Control::Kind::Scan;
    control.carried = arguments.count(Role::kCarried);
    control.sliced = arguments.count(Role::kSliced);
    control.length = length_;
    control.reverse = reverse;
    return run_control(control, {trace_part(body_->name, arguments.examples(), iteration)},
                       arguments.all());
  }

  // The gradients of the body's inputs that are carried, then those of slices.
  Tensors in_order(const Tensors& found) const {
    Tensors carried, slices;
    for (size_t i = 0; i < found.size(); ++i) {
      const PureEntry::GradientInput& input = body_->gradient->inputs[i];
      if (is_carried(input)) {
        const Graph& graph = body_->forward->computation->graph;
        carried.push_back(found[i].defined()
                              ? found[i]
                              : zeros_of(graph.inputs[static_cast<size_t>(input.argument)]->type(0),
                                         body_->device));
      } else if (input.output >= 0) {
        (is_summed(input) ? carried : slices).push_back(found[i]);
      }
    }
    carried.insert(carried.end(), slices.begin(), slices.end());
    return carried;
  }

  // The other way round: what the loop gave in that order, by inputs().
  Tensors by_input(const Tensors& found) const {
    const auto& inputs = body_->gradient->inputs;
    size_t next_slice =
        static_cast<size_t>(std::count_if(inputs.begin(), inputs.end(), [&](const auto& input) {
          return is_carried(input) || is_summed(input);
        }));
    size_t next_carried = 0;
    Tensors results(argument_count());
    for (const PureEntry::GradientInput& input : inputs) {
      at::Tensor gradient;
      if (is_carried(input) || is_summed(input)) {
        gradient = found[next_carried++];
      } else if (input.output >= 0) {
        gradient = found[next_slice++];
      }
      if (input.handle >= 0) {
        results.push_back(gradient);
      } else {
        results[input.argument] = gradient;
      }
    }
    return results;
  }

  const EntryPtr body_;
  const size_t carried_, sliced_, same_;
  const int64_t length_;
  const bool reverse_;
  const std::vector<SavedPlace> places_;
  std::vector<size_t> results_;  // of the body: those that are results of the node
};

}  // namespace

Tensors run_scan(const Subgraph& body, const ScanInputs& given) {
  const ScanInputs inputs{all_dense(given.init, "scan"), all_dense(given.stacks, "scan"),
                          all_dense(given.same, "scan"), given.length, given.reverse};
  const std::string where = "scan (at " + location_of(last_location()).str() + ") ";
  if (inputs.length <= 0) {
    throw Error(where + "goes over no slices: there is nothing to call the function with");
  }
  for (const at::Tensor& stack : inputs.stacks) {
    if (stack.dim() == 0 || stack.size(0) != inputs.length) {
      throw Error(where + "goes over " + std::to_string(inputs.length) +
                  " slices, but was given a tensor of shape " + c10::str(stack.sizes()) +
                  ": all must have the same first dimension");
    }
  }
  EntryPtr entry = trace_body(body, inputs);
  const bool differentiable = entry->gradient != nullptr;
  auto scan = c10::make_intrusive<Scan>(std::move(entry), inputs);
  return scan->with_what_stays(torch_xla::apply(scan, scan->inputs(inputs), differentiable),
                               given.init);
}

namespace {

// The condition's value as loops and branches read it.
at::Tensor test(const PureEntry& condition, const Tensors& arguments) {
  return call_with_saved(condition, arguments, {})[0].reshape({});
}

Tensors examples_like(const Tensors& tensors) {
  Tensors examples;
  for (const at::Tensor& tensor : tensors) {
    examples.push_back(make_example(tensor, tensor.sizes(), false));
  }
  return examples;
}

Tensors joined(Tensors first, const Tensors& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

EntryPtr trace_condition(const Subgraph& condition, const Tensors& arguments) {
  at::NoGradGuard no_grad;
  EntryPtr entry = unchanging(condition(examples_like(arguments)));
  if (entry->results.size() != 1 || entry->results[0].dtype != at::kBool ||
      product(entry->results[0].sizes) != 1) {
    throw Error("the condition " + entry->name + " of a while_loop (at " +
                location_of(last_location()).str() +
                ") must return one bool tensor with one element: compare or reduce its result "
                "with any() or all()");
  }
  return entry;
}

// The loop without gradients. Gives the number of iterations, then the carried values.
Tensors run_counted(const EntryPtr& condition, const PureEntry& body, const ScanInputs& inputs,
                    bool commit) {
  at::NoGradGuard no_grad;
  const Tensors all = joined(inputs.init, inputs.same);
  PartArguments arguments;
  arguments.add(Role::kCarried, dense(call_entry(condition, all)[0].reshape({})));
  arguments.add(Role::kCarried, zeros_of({DType::Long, {}}, inputs.init[0].device().index()));
  for (size_t i = 0; i < all.size(); ++i) {
    arguments.add(i < inputs.init.size() ? Role::kCarried : Role::kSame, all[i]);
  }
  const auto iteration = [&](const Tensors& values) {
    const auto carried = values.begin() + 2;
    const auto same = carried + static_cast<std::ptrdiff_t>(inputs.init.size());
    Tensors next = owned(call_with_saved(body, Tensors(carried, values.end()), {}));
    at::Tensor again = test(*condition, joined(next, Tensors(same, values.end())));
    return owned(joined({again, values[1] + 1}, next));
  };
  Control control;
  control.kind = Control::Kind::While;
  control.carried = arguments.count(Role::kCarried);
  const EntryPtr part = trace_part(body.name, arguments.examples(), iteration);
  Tensors results = run_control(control, {part}, arguments.all(), commit);
  results.erase(results.begin());
  return results;
}

// How often a loop runs that needs gradients: what each iteration keeps has to have a place.
int64_t count_iterations(const EntryPtr& condition, const PureEntry& body,
                         const ScanInputs& inputs) {
  if (std::any_of(condition->inputs.begin(), condition->inputs.end(),
                  [](const PureEntry::Input& input) { return input.written >= 0; })) {
    throw Error("the condition " + condition->name +
                " of a while_loop that needs gradients draws random numbers or changes a tensor: "
                "do that in the loop's body, or use torch.no_grad()");
  }
  const std::string why =
      "the gradient of the while_loop over " + body.name +
      " needs the number of its iterations, which only its values know: use scan or fori_loop "
      "with a number, or torch.no_grad()";
  refuse_while_tracing(why.c_str());
  RunReason reason("the number of iterations of a while_loop that needs gradients");
  return run_counted(condition, body, inputs, /*commit=*/false)[0].item<int64_t>();
}

}  // namespace

Tensors run_while(const Subgraph& condition, const Subgraph& body, const Tensors& init,
                  const Tensors& same) {
  ScanInputs inputs{all_dense(init, "while_loop"), {}, all_dense(same, "while_loop")};
  if (inputs.init.empty()) {
    throw Error("while_loop (at " + location_of(last_location()).str() +
                ") was given nothing to carry from iteration to iteration");
  }
  const EntryPtr step = trace_body(body, inputs);
  const EntryPtr again = trace_condition(condition, joined(inputs.init, inputs.same));
  if (!step->gradient) {
    Tensors results = run_counted(again, *step, inputs, /*commit=*/true);
    results.erase(results.begin());
    return results;
  }
  inputs.length = count_iterations(again, *step, inputs);
  if (inputs.length > 0) {
    return run_scan(body, inputs);
  }
  Tensors results;
  for (const at::Tensor& tensor : inputs.init) {
    results.push_back(tensor.clone());
  }
  return results;
}

}  // namespace torch_xla
