#include "base/location.h"
#include "pure/control.h"
#include "pure/pure_function.h"
#include "torch_xla/control_flow.h"

namespace torch_xla {

namespace {

class FunctionCallee : public PureCallee {
 public:
  explicit FunctionCallee(TensorFunction function) : function_(std::move(function)) {}
  Tensors run(const Tensors& arguments) override { return function_(arguments); }

 private:
  const TensorFunction function_;
};

// A function whose traces are kept for one call of control flow.
class OneCall {
 public:
  OneCall(const char* name, TensorFunction function, size_t carried = 0)
      : function_(std::move(function)), carried_(carried), pure_(name) {}

  Subgraph subgraph() {
    return [this](const Tensors& examples) {
      return pure_
          .find_or_trace(PureFunction::query(0, examples), examples,
                         [this] {
                           return with_own_results(std::make_shared<FunctionCallee>(function_),
                                                   carried_);
                         })
          .entry;
    };
  }

 private:
  const TensorFunction function_;
  const size_t carried_;
  PureFunction pure_;
};

Tensors part(const Tensors& tensors, size_t begin, size_t end) {
  return {tensors.begin() + static_cast<std::ptrdiff_t>(begin),
          tensors.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

Tensors cond(const at::Tensor& predicate, const TensorFunction& on_true,
             const TensorFunction& on_false, const Tensors& operands) {
  current_location();
  OneCall taken("cond", on_true), otherwise("cond", on_false);
  return run_cond(predicate, taken.subgraph(), otherwise.subgraph(), operands);
}

Tensors while_loop(const std::function<at::Tensor(const Tensors&)>& condition,
                   const TensorFunction& body, const Tensors& carried) {
  current_location();
  OneCall test("while_loop condition",
               [&](const Tensors& values) { return Tensors{condition(values)}; });
  OneCall step("while_loop", body);
  return run_while(test.subgraph(), step.subgraph(), carried, {});
}

ScanResults scan(const ScanFunction& step, const Tensors& init, const Tensors& xs, bool reverse) {
  current_location();
  const size_t carried = init.size();
  OneCall call(
      "scan",
      [&](const Tensors& arguments) {
        auto [next, slices] =
            step(part(arguments, 0, carried), part(arguments, carried, arguments.size()));
        next.insert(next.end(), slices.begin(), slices.end());
        return next;
      },
      carried);
  const int64_t length = xs.empty() || xs[0].dim() == 0 ? 0 : xs[0].size(0);
  Tensors results = run_scan(call.subgraph(), {init, xs, {}, length, reverse});
  return {part(results, 0, carried), part(results, carried, results.size())};
}

}  // namespace torch_xla
