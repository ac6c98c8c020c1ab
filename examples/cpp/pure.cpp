// A layer traced once: later calls add one operation to the graph, forward and backward.
#include <torch/torch.h>
#include <torch_xla/torch_xla.h>

#include <cstdio>
#include <stdexcept>

namespace {

torch::Tensor layer(const torch::Tensor& x, const torch::Tensor& w, double scale) {
  return torch::tanh(x.matmul(w)) * scale;
}

void expect_close(const torch::Tensor& actual, const torch::Tensor& expected, const char* what) {
  if (!torch::allclose(actual.cpu(), expected, 1e-4, 1e-5)) {
    throw std::runtime_error(std::string(what) + " differs from the plain function's");
  }
}

}  // namespace

int main() {
  torch::manual_seed(0);
  const torch::Device device = torch_xla::device();
  const torch::Tensor x = torch::randn({8, 16});
  const torch::Tensor w = torch::randn({16, 16});
  torch::Tensor device_w = w.to(device).requires_grad_();

  auto pure = torch_xla::assume_pure(layer, "layer");
  for (int call = 0; call < 10; ++call) {
    expect_close(pure(x.to(device), device_w, 0.5), layer(x, w, 0.5), "the result");
  }
  torch::Tensor leaf = w.clone().requires_grad_();
  layer(x, leaf, 2.0).sum().backward();
  pure(x.to(device), device_w, 2.0).sum().backward();  // another number: another trace
  expect_close(device_w.grad(), leaf.grad(), "the gradient");

  const torch_xla::PureInfo info = pure.info();
  std::printf("traces %lld, hits %lld\n", static_cast<long long>(info.traces),
              static_cast<long long>(info.hits));
  try {
    torch_xla::assume_pure([](const torch::Tensor& t) { return t * t.sum().item<float>(); },
                           "reads")(x.to(device));
    std::printf("a read was not refused\n");
    return 1;
  } catch (const std::exception& error) {
    std::printf("refused: %.60s...\n", error.what());
  }
  std::printf("all equal\n");
}
