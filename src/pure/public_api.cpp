#include "pure/pure_function.h"
#include "torch_xla/assume_pure.h"
#include "trace/scope.h"

namespace torch_xla {

void watch_gradients(const std::vector<at::Tensor>& leaves) {
  TraceScope* scope = current_scope();
  for (const at::Tensor& leaf : leaves) {
    if (scope != nullptr && is_xla(leaf)) {
      scope->watch_gradient(leaf);
    }
  }
}

namespace detail {

class PureState {
 public:
  explicit PureState(const std::string& name) : function(name) {}
  PureFunction function;
};

namespace {

class CppCallee : public PureCallee {
 public:
  explicit CppCallee(std::function<Tensors(const Tensors&)> body) : body_(std::move(body)) {}
  Tensors run(const Tensors& arguments) override { return body_(arguments); }

 private:
  std::function<Tensors(const Tensors&)> body_;
};

}  // namespace

std::shared_ptr<PureState> make_pure(const std::string& name) {
  return std::make_shared<PureState>(name);
}

Tensors call_pure(PureState& state, uint64_t static_key, const Tensors& arguments,
                  const std::function<Tensors(const Tensors&)>& body) {
  return state.function.call(static_key, arguments,
                             [&] { return std::make_shared<CppCallee>(body); });
}

PureInfo pure_info(const PureState& state) {
  PureCacheInfo info = state.function.info();
  return {info.hits, info.misses, info.traces};
}

}  // namespace detail
}  // namespace torch_xla
