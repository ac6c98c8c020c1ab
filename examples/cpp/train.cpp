// Trains a small network on the xla device: fits y = sin(x0) + x1. The number of steps may be
// given.
#include <torch/torch.h>
#include <torch_xla/torch_xla.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  torch::manual_seed(0);
  const torch::Device device = torch_xla::device();

  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 1));
  torch_xla::move(*model, device);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  const torch::Tensor inputs = torch::rand({256, 2}) * 4 - 2;
  const torch::Tensor targets = (inputs.select(1, 0).sin() + inputs.select(1, 1)).unsqueeze(1);
  const torch::Tensor x = inputs.to(device);
  const torch::Tensor y = targets.to(device);

  torch::Tensor loss;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss = torch::mse_loss(model->forward(x), y);
    loss.backward();
    optimizer.step();
    torch_xla::sync();  // the step's operations were recorded; now they run as one program
    if (step % 50 == 0) {
      std::printf("step %d: loss %.4f\n", step, loss.item<float>());
    }
  }
  std::printf("final loss %.4f\n", loss.item<float>());
  std::printf("compiled %lld programs, ran %lld times\n",
              static_cast<long long>(torch_xla::counter_value("UncachedCompile") +
                                     torch_xla::counter_value("PersistentCacheHit")),
              static_cast<long long>(torch_xla::sample_count("ExecuteTime")));
  for (const torch_xla::Recompile& compiled : torch_xla::recompiles()) {
    std::printf("compiled %s, %zu operations: %s\n", compiled.name.c_str(), compiled.operations,
                compiled.reason.c_str());
  }
}
