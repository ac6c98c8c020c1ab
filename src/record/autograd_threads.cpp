#include "record/autograd_threads.h"

#include "pjrt/client.h"
#include "trace/tensor.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

namespace torch_xla {

void drain_autograd_threads() {
  namespace autograd = torch::autograd;
  if (!pjrt::client_started()) {
    return;
  }
  at::AutoGradMode with_grad(true);
  for (int device = 0; device < pjrt::device_count_hint(); ++device) {
    // A backward pass of its own, without operators: the thread takes it up after all others.
    at::Tensor leaf = empty_tensor(DType::Float, {1}, {1}, device).set_requires_grad(true);
    at::Tensor result = leaf.view({1});
    autograd::Engine::get_default_engine().execute(
        {autograd::impl::gradient_edge(result)}, {empty_tensor(DType::Float, {1}, {1}, device)},
        /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/false,
        {autograd::impl::gradient_edge(leaf)});
  }
}

}  // namespace torch_xla
