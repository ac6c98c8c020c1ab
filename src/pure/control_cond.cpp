// Branches. The gradient of a branch is a branch on the same predicate; what one branch's gradient
// keeps, the other one gives as zeros.
#include "base/error.h"
#include "base/location.h"
#include "pure/control.h"
#include "pure/control_gradient.h"
#include "pure/record.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>

namespace torch_xla {

namespace {

using Role = PartArguments::Role;

class OwnResults : public PureCallee {
 public:
  OwnResults(std::shared_ptr<PureCallee> callee, size_t carried)
      : callee_(std::move(callee)), carried_(carried) {}

  Tensors run(const Tensors& arguments) override {
    Tensors results = callee_->run(arguments);
    for (size_t i = 0; i < results.size(); ++i) {
      at::Tensor& result = results[i];
      const bool stays = i < carried_ && i < arguments.size() && result.is_same(arguments[i]);
      if (!stays && is_xla(result) && state_of(result)->scope.get() != current_scope()) {
        result = at::clone(result, at::MemoryFormat::Contiguous);
      }
    }
    return results;
  }

  std::shared_ptr<void> annotation() override { return callee_->annotation(); }

 private:
  const std::shared_ptr<PureCallee> callee_;
  const size_t carried_;
};

// One of the two functions.
struct Branch {
  explicit Branch(EntryPtr traced)
      : entry(std::move(traced)), places(places_of_saved(*entry, [](int32_t) { return true; })) {}

  const EntryPtr entry;
  const std::vector<SavedPlace> places;
};

class Cond : public ControlFlow {
 public:
  Cond(EntryPtr on_true, EntryPtr on_false, size_t operands)
      : branches_{Branch(std::move(on_true)), Branch(std::move(on_false))}, operands_(operands) {
    for (const Branch& branch : branches_) {
      add_sources(*branch.entry);
    }
  }

  // The predicate, operands, and the closed-over tensors that need gradients.
  Tensors inputs(const at::Tensor& predicate, const Tensors& operands) const {
    Tensors inputs{predicate};
    inputs.insert(inputs.end(), operands.begin(), operands.end());
    for (const Source& source : sources_) {
      if (source.input.argument < 0) {
        inputs.push_back(source.tensor);
      }
    }
    return inputs;
  }

  Tensors forward(const Tensors& inputs, Tensors& saved) override {
    PartArguments arguments;
    for (size_t i = 0; i < operands_; ++i) {
      arguments.add(Role::kSame, inputs[1 + i]);
    }
    Tensors results = run(inputs[0], arguments, [&](const Branch& branch, const Tensors& values) {
      return with_saved_of_both(branch, values);
    });
    size_t next = branches_[0].entry->results.size();
    saved.push_back(inputs[0]);
    for (const Branch& branch : branches_) {
      for (size_t i = 0; i < branch.places.size(); ++i) {
        const SavedPlace& place = branch.places[i];
        saved.push_back(place.argument >= 0 ? inputs[1 + static_cast<size_t>(place.argument)]
                        : place.handle >= 0 ? saved_handle(*branch.entry, i)
                                            : results[next++]);
      }
    }
    results.resize(branches_[0].entry->results.size());
    return results;
  }

  Tensors backward(const Tensors& saved, const Tensors& gradients) override {
    PartArguments arguments;
    std::vector<PartArguments::Place> kept, tangents(gradients.size());
    for (size_t i = 1; i < saved.size(); ++i) {
      kept.push_back(arguments.add(Role::kSame, saved[i]));
    }
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (needs_gradient(i)) {
        tangents[i] = arguments.add(Role::kSame, dense(gradients[i]));
      }
    }
    Tensors found = run(saved[0], arguments, [&](const Branch& branch, const Tensors& values) {
      const bool is_first = &branch == branches_;
      Tensors own_kept, own_tangents;
      for (size_t i = 0; i < branch.places.size(); ++i) {
        const size_t at = i + (is_first ? 0 : branches_[0].places.size());
        own_kept.push_back(arguments.get(values, kept[at]));
      }
      for (int32_t result : tangents_of(branch)) {
        own_tangents.push_back(arguments.get(values, tangents[static_cast<size_t>(result)]));
      }
      return owned(by_source(*branch.entry, own_kept, own_tangents));
    });
    Tensors results(1 + operands_);
    for (size_t i = 0; i < sources_.size(); ++i) {
      const int32_t argument = sources_[i].input.argument;
      if (argument >= 0) {
        results[1 + static_cast<size_t>(argument)] = found[i];
      } else {
        results.push_back(found[i]);
      }
    }
    return results;
  }

  bool needs_gradient(size_t result) const override {
    return branches_[0].entry->results[result].requires_grad ||
           branches_[1].entry->results[result].requires_grad;
  }
  const std::string& name() const override { return branches_[0].entry->name; }
  bool differentiable() const {
    return branches_[0].entry->gradient != nullptr || branches_[1].entry->gradient != nullptr;
  }

 private:
  // What a gradient flows to from one branch or both.
  struct Source {
    PureEntry::GradientInput input;
    at::Tensor tensor;  // if it is closed over
  };

  void add_sources(const PureEntry& entry) {
    if (!entry.gradient) {
      return;
    }
    for (const PureEntry::GradientInput& input : entry.gradient->inputs) {
      if (input.output >= 0 && source_of(entry, input) == sources_.size()) {
        sources_.push_back(
            {input, input.handle >= 0 ? entry.handles[input.handle].place.tensor : at::Tensor()});
      }
    }
  }

  size_t source_of(const PureEntry& entry, const PureEntry::GradientInput& input) const {
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (input.argument >= 0
              ? sources_[i].input.argument == input.argument
              : sources_[i].tensor.is_same(entry.handles[input.handle].place.tensor)) {
        return i;
      }
    }
    return sources_.size();
  }

  static std::vector<int32_t> tangents_of(const Branch& branch) {
    return branch.entry->gradient ? branch.entry->gradient->tangents : std::vector<int32_t>();
  }

  Tensors run(const at::Tensor& predicate, const PartArguments& given,
              const std::function<Tensors(const Branch&, const Tensors&)>& branch) const {
    std::vector<EntryPtr> parts;
    for (const Branch& each : branches_) {
      parts.push_back(trace_part(each.entry->name, given.examples(),
                                 [&](const Tensors& values) { return branch(each, values); }));
    }
    Tensors arguments = given.all();
    arguments.insert(arguments.begin(), predicate);
    Control control;
    control.kind = Control::Kind::If;
    return run_control(control, parts, arguments);
  }

  Tensors with_saved_of_both(const Branch& branch, const Tensors& values) const {
    Tensors own = owned(call_with_saved(*branch.entry, values, branch.places));
    const auto kept = own.begin() + static_cast<std::ptrdiff_t>(branch.entry->results.size());
    Tensors all(own.begin(), kept);
    for (const Branch& each : branches_) {
      if (&each == &branch) {
        all.insert(all.end(), kept, own.end());
        continue;
      }
      for (size_t i = 0; i < each.places.size(); ++i) {
        if (each.places[i].is_result()) {
          const TensorType& type = saved_type(*each.entry, each.entry->gradient->saved[i]);
          all.push_back(zeros_of(type, branch.entry->device));
        }
      }
    }
    return all;
  }

  Tensors by_source(const PureEntry& entry, const Tensors& kept, const Tensors& tangents) const {
    Tensors results(sources_.size());
    if (entry.gradient) {
      Tensors found = call_backward(entry, kept, tangents);
      for (size_t i = 0; i < found.size(); ++i) {
        if (found[i].defined()) {
          results[source_of(entry, entry.gradient->inputs[i])] = found[i];
        }
      }
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].defined()) {
        results[i] = zeros_of({sources_[i].input.dtype, sources_[i].input.sizes}, entry.device);
      }
    }
    return results;
  }

  const Branch branches_[2];
  const size_t operands_;
  std::vector<Source> sources_;
};

std::string description(const PureEntry::Result& result) {
  return std::string(c10::toString(result.dtype)) + c10::str(c10::IntArrayRef(result.sizes));
}

void check_alike(const PureEntry& on_true, const PureEntry& on_false) {
  const std::string where = " (at " + location_of(last_location()).str() + ")";
  if (on_true.results.size() != on_false.results.size()) {
    throw Error("the branches of cond" + where + " return " +
                std::to_string(on_true.results.size()) + " and " +
                std::to_string(on_false.results.size()) + " tensors: they must return the same");
  }
  for (size_t i = 0; i < on_true.results.size(); ++i) {
    const std::string one = description(on_true.results[i]);
    const std::string other = description(on_false.results[i]);
    if (one != other) {
      throw Error("the branches of cond" + where + " return a " + one + " and a " + other +
                  " as result " + std::to_string(i) +
                  ": shapes and dtypes must be the same, because the program "
                  "is made for both");
    }
  }
}

}  // namespace

std::shared_ptr<PureCallee> with_own_results(std::shared_ptr<PureCallee> callee, size_t carried) {
  return std::make_shared<OwnResults>(std::move(callee), carried);
}

Tensors run_cond(const at::Tensor& predicate, const Subgraph& on_true, const Subgraph& on_false,
                 const Tensors& given) {
  if (!is_xla(predicate) || predicate.numel() != 1) {
    throw Error("cond (at " + location_of(last_location()).str() +
                ") needs a tensor with one element on the xla device as its "
                "predicate, received " +
                c10::str(predicate.sizes()) + " on " + predicate.device().str());
  }
  const Tensors operands = all_dense(given, "cond");
  auto trace = [&](const Subgraph& branch) {
    Tensors examples;
    for (const at::Tensor& operand : operands) {
      examples.push_back(make_example(operand, operand.sizes(),
                                      at::GradMode::is_enabled() && operand.requires_grad()));
    }
    return unchanging(branch(examples));
  };
  EntryPtr taken = trace(on_true), otherwise = trace(on_false);
  check_alike(*taken, *otherwise);
  auto cond = c10::make_intrusive<Cond>(std::move(taken), std::move(otherwise), operands.size());
  const bool differentiable = cond->differentiable();
  const at::Tensor decision = dense(predicate.detach().to(at::kBool).reshape({}));
  const Tensors inputs = cond->inputs(decision, operands);
  return torch_xla::apply(std::move(cond), inputs, differentiable);
}

}  // namespace torch_xla
