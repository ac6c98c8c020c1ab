// The pieces of norms of rows compute what PyTorch's kernels compute.
#include "host_ops/row_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>

namespace torch_xla {
namespace {

using torch::Tensor;
using torch::jit::Stack;
using Sizes = std::vector<int64_t>;

c10::OperatorHandle find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

// `results`: of the sizes and types that the call has; those that are not written stay nan.
void run_all(const c10::OperatorHandle& op, const Stack& arguments, int64_t threads,
             std::vector<Tensor>& results) {
  const std::vector<CallPiece> pieces = divide_row_norm(op, arguments, threads);
  ASSERT_FALSE(pieces.empty());
  for (const CallPiece& piece : pieces) {
    std::vector<Tensor> parts;
    for (const CallPiece::Part& part : piece.parts) {
      parts.push_back(results[part.result].narrow(part.dim, part.start, part.length));
    }
    piece.kernel(piece.arguments, parts);
  }
}

Tensor unwritten(const Tensor& like) { return torch::full_like(like, std::nan("")); }

void expect_close(const Tensor& found, const Tensor& wanted, double tolerance) {
  const Tensor error = (found.to(torch::kDouble) - wanted.to(torch::kDouble)).abs().max();
  const double scale = wanted.to(torch::kDouble).abs().max().item<double>();
  EXPECT_LE(error.item<double>(), tolerance * scale);
}

struct RowNormCase {
  Sizes sizes, shape;  // shape: of what is normalised, the last dimensions of sizes
  int64_t threads;
};

class RowNorm : public testing::TestWithParam<RowNormCase> {
 protected:
  Tensor input(torch::Dtype dtype) const {
    return (torch::randn(GetParam().sizes) * 2 + 3).to(dtype);
  }
  Tensor parameter() const { return torch::randn(GetParam().shape); }
};

TEST_P(RowNorm, ForwardIsPyTorchs) {
  const auto& [sizes, shape, threads] = GetParam();
  for (torch::Dtype dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    const Tensor x = input(dtype), weight = parameter(), bias = parameter();
    auto [y, mean, inverse] = torch::native_layer_norm(
        x.to(torch::kDouble), shape, weight.to(torch::kDouble), bias.to(torch::kDouble), 1e-5);
    std::vector<Tensor> found = {unwritten(x), unwritten(mean.to(torch::kFloat)),
                                 unwritten(inverse.to(torch::kFloat))};
    run_all(find_op("aten::native_layer_norm"), {x, shape, weight, bias, 1e-5}, threads, found);
    const double tolerance = dtype == torch::kFloat ? 1e-6 : 4e-3;
    expect_close(found[0], y, tolerance);
    expect_close(found[1], mean, 1e-6);
    expect_close(found[2], inverse, 1e-6);
  }
}

TEST_P(RowNorm, GradientsArePyTorchs) {
  const auto& [sizes, shape, threads] = GetParam();
  for (torch::Dtype dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    const Tensor x = input(dtype), gradient = torch::randn(sizes).to(dtype);
    for (const Tensor& weight : {parameter(), Tensor()}) {
      const Tensor wide = weight.defined() ? weight.to(torch::kDouble) : Tensor();
      auto [y, mean, inverse] =
          torch::native_layer_norm(x.to(torch::kDouble), shape, wide, {}, 1e-5);
      auto wanted = at::native_layer_norm_backward(
          gradient.to(torch::kDouble), x.to(torch::kDouble), shape, mean, inverse, wide, wide,
          {true, weight.defined(), weight.defined()});
      const Tensor like = torch::zeros(shape);
      std::vector<Tensor> found = {unwritten(x), unwritten(like), unwritten(like)};
      const bool weighted = weight.defined();
      run_all(find_op("aten::native_layer_norm_backward"),
              {gradient, x, shape, mean.to(torch::kFloat), inverse.to(torch::kFloat),
               weighted ? c10::IValue(weight) : c10::IValue(), c10::IValue(),
               c10::List<bool>({true, weighted, weighted})},
              threads, found);
      const double tolerance = dtype == torch::kFloat ? 1e-5 : 1e-2;
      expect_close(found[0], std::get<0>(wanted), tolerance);
      if (weighted) {
        expect_close(found[1], std::get<1>(wanted), 1e-5);
        expect_close(found[2], std::get<2>(wanted), 1e-5);
      }
    }
  }
}

TEST_P(RowNorm, RootMeanSquares) {
  const auto& [sizes, shape, threads] = GetParam();
  const Tensor x = input(torch::kFloat).requires_grad_(), gradient = torch::randn(sizes);
  const Tensor weight = parameter().requires_grad_();
  Sizes dims;
  for (size_t d = 1; d <= shape.size(); ++d) {
    dims.push_back(-static_cast<int64_t>(d));
  }
  const Tensor inverse = torch::rsqrt(x.square().mean(dims, true) + 1e-5);
  const Tensor y = x * inverse * weight;
  const auto wanted = torch::autograd::grad({y}, {x, weight}, {gradient});
  std::vector<Tensor> found = {unwritten(x.detach()), unwritten(inverse.detach())};
  run_all(find_op("aten::_fused_rms_norm"), {x.detach(), shape, weight.detach(), 1e-5}, threads,
          found);
  expect_close(found[0], y.detach(), 1e-6);
  expect_close(found[1], inverse.detach(), 1e-6);
  std::vector<Tensor> gradients = {unwritten(x.detach()), unwritten(weight.detach())};
  run_all(find_op("aten::_fused_rms_norm_backward"),
          {gradient, x.detach(), shape, inverse.detach(), weight.detach(),
           c10::List<bool>({true, true})},
          threads, gradients);
  expect_close(gradients[0], wanted[0], 1e-5);
  expect_close(gradients[1], wanted[1], 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RowNorm,
    testing::Values(RowNormCase{{8, 197, 384}, {384}, 2}, RowNormCase{{1, 700, 129}, {129}, 3},
                    RowNormCase{{1, 1, 20000}, {20000}, 2}, RowNormCase{{20000}, {20000}, 1},
                    RowNormCase{{64, 8, 40}, {8, 40}, 5}, RowNormCase{{3, 1031, 16}, {16}, 16}));

TEST(RowNorms, AreLeftToPyTorch) {
  const auto op = find_op("aten::native_layer_norm");
  const auto divided = [&](const Tensor& x) {
    const Sizes shape = {x.size(-1)};
    return !divide_row_norm(op, {x, shape, torch::ones(shape), torch::ones(shape), 1e-5}, 2)
                .empty();
  };
  EXPECT_TRUE(divided(torch::ones({512, 64})));
  EXPECT_FALSE(divided(torch::ones({8, 64})));                                  // little
  EXPECT_FALSE(divided(torch::ones({64, 512}).t()));                            // strided
  EXPECT_FALSE(divided(torch::ones({512, 64}, torch::dtype(torch::kDouble))));  // another type
  EXPECT_FALSE(divided(torch::ones({8192, 8})));                                // short rows
}

}  // namespace
}  // namespace torch_xla
