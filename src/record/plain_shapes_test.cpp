#include "record/plain_shapes.h"
#include "record/results.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

namespace torch_xla {

namespace {

using at::Tensor;

c10::OperatorHandle find(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

Tensor to_meta_tensor(const Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

IValues on_meta(const IValues& arguments) {
  IValues result;
  for (const c10::IValue& value : arguments) {
    if (value.isTensorList()) {
      c10::List<Tensor> tensors;
      for (const Tensor& tensor : value.toTensorVector()) {
        tensors.push_back(to_meta_tensor(tensor));
      }
      result.emplace_back(std::move(tensors));
      continue;
    }
    result.push_back(value.isTensor() && value.toTensor().defined()
                         ? c10::IValue(to_meta_tensor(value.toTensor()))
                         : value);
  }
  return result;
}

// The CPU's kernel is right: definedness, sizes, order and dtype of each result.
void expect_as_on_cpu(const c10::OperatorHandle& op, const IValues& arguments,
                      const std::optional<IValues>& results) {
  ASSERT_TRUE(results.has_value()) << op.schema();
  IValues stack = arguments;
  op.callBoxed(&stack);
  const std::vector<Tensor> wanted = flatten_tensors(stack), got = flatten_tensors(*results);
  ASSERT_EQ(got.size(), wanted.size()) << op.schema();
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(got[i].defined(), wanted[i].defined()) << op.schema() << " result " << i;
    if (wanted[i].defined()) {
      EXPECT_EQ(got[i].sizes(), wanted[i].sizes()) << op.schema() << " result " << i;
      EXPECT_EQ(got[i].strides(), wanted[i].strides()) << op.schema() << " result " << i;
      EXPECT_EQ(got[i].scalar_type(), wanted[i].scalar_type()) << op.schema() << " result " << i;
    }
  }
}

void expect_plain(const char* name, const IValues& arguments, const char* overload = "") {
  const auto op = find(name, overload);
  expect_as_on_cpu(op, arguments, plain_results(op, on_meta(arguments)));
}

c10::List<bool> mask(bool a, bool b, bool c) { return c10::List<bool>({a, b, c}); }

const Tensor kNone;

TEST(PlainShapes, AreThoseOfTheCpu) {
  const Tensor x = at::zeros({2, 4, 6, 6}), weight = at::zeros({8, 2, 3, 3});
  const Tensor four = at::zeros({4}), eight = at::zeros({8});
  const std::vector<int64_t> one{1, 1}, two{2, 2}, none{0, 0}, channels{8}, last{6, 6};
  expect_plain("aten::relu", {x});
  for (const auto& padding : {none, one}) {
    expect_plain("aten::convolution",
                 {x, weight, eight, two, padding, one, false, none, int64_t{2}});
  }
  const Tensor wider = at::zeros({4, 3, 3, 3});
  for (const auto& added : {none, one}) {
    expect_plain("aten::convolution",
                 {x, wider, at::zeros({6}), two, one, one, true, added, int64_t{2}});
  }
  expect_plain("aten::_adaptive_avg_pool2d", {x, two});
  expect_plain("aten::_adaptive_avg_pool2d_backward", {x.slice(2, 0, 2).slice(3, 0, 2).clone(), x});
  expect_plain("aten::reflection_pad2d", {x, std::vector<int64_t>{1, 2, 0, 5}});
  const Tensor grad = at::zeros({2, 8, 3, 3});
  for (bool bias : {true, false}) {
    expect_plain("aten::convolution_backward", {grad, x, weight, channels, two, one, one, false,
                                                none, int64_t{2}, mask(true, true, bias)});
  }
  const Tensor scale = at::zeros({6, 6}), statistics = at::zeros({2, 4, 1, 1});
  expect_plain("aten::native_layer_norm", {x, last, scale, kNone, 1e-5});
  expect_plain("aten::native_layer_norm_backward",
               {x, x, last, statistics, statistics, scale, scale, mask(true, false, true)});
  expect_plain("aten::_native_batch_norm_legit", {x, four, four, four, four, true, 0.1, 1e-5});
  expect_plain("aten::_native_batch_norm_legit_functional",
               {x, kNone, kNone, four, four, true, 0.1, 1e-5});
  // The CPU saves nothing there; meta and programs do.
  const auto evaluation = plain_results(find("aten::_native_batch_norm_legit_no_training"),
                                        on_meta({x, four, kNone, four, four, 0.1, 1e-5}));
  ASSERT_TRUE(evaluation.has_value());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*evaluation)[i].toTensor().sizes(), i == 0 ? x.sizes() : four.sizes());
  }
  expect_plain("aten::native_batch_norm_backward",
               {x, x, four, four, four, four, four, true, 1e-5, mask(false, true, true)});
  const Tensor query = at::zeros({2, 5, 3, 8}).transpose(1, 2);
  expect_plain("aten::_scaled_dot_product_flash_attention_for_cpu",
               {query, query, query, 0.0, false, c10::IValue(), c10::IValue()});
  expect_plain("aten::embedding", {scale, at::zeros({2, 3}, at::kLong), int64_t{-1}, false, false});
  expect_plain("aten::clone", {x.transpose(1, 3), c10::IValue()});
  expect_plain("aten::clone", {x.transpose(1, 3), at::MemoryFormat::Contiguous});
  expect_plain("aten::clone", {x.slice(2, 0, 6, 2), at::MemoryFormat::Preserve});
  expect_plain("aten::clone", {at::zeros({1, 3, 4}).slice(1, 1, 3, 3), c10::IValue()});
  expect_plain("aten::select_backward",
               {at::zeros({2, 6, 6}), x.sizes().vec(), int64_t{-3}, int64_t{-1}});
}

TEST(PlainShapes, OfSumsAreThoseOfTheCpu) {
  const Tensor x = at::zeros({2, 4, 6, 6});
  for (const auto& dims : {std::vector<int64_t>{}, {1}, {-1, 0}}) {
    for (bool keep : {false, true}) {
      for (const char* name : {"aten::std", "aten::var", "aten::std_mean", "aten::var_mean"}) {
        expect_plain(name, {x, dims, 1, keep}, "correction");
        expect_plain(name, {x, c10::IValue(), 1, keep}, "correction");
      }
    }
  }
  const std::vector<int64_t> twice{1, -3};
  EXPECT_FALSE(plain_results(find("aten::var", "correction"), on_meta({x, twice, 1, false})));
  EXPECT_FALSE(plain_results(find("aten::flip"), on_meta({x, twice})));
}

TEST(PlainShapes, OfWhatIsWrittenAreThoseOfTheCpu) {
  const Tensor x = at::zeros({2, 4, 6}), mask = at::zeros({4, 1}, at::kBool);
  const Tensor answers = at::zeros({2, 4, 6}, at::kBool);
  expect_plain("aten::zero_", {x});
  expect_plain("aten::masked_fill_", {x, mask, 0}, "Scalar");
  expect_plain("aten::logical_not_", {answers});
  for (const char* name : {"aten::logical_and_", "aten::logical_or_"}) {
    expect_plain(name, {answers, mask});
    EXPECT_FALSE(plain_results(find(name), on_meta({mask, answers})));
  }
  expect_plain("aten::flip", {x, std::vector<int64_t>{0, -1}});
  expect_plain("aten::nan_to_num", {x, 0.0, c10::IValue(), c10::IValue()});
}

TEST(PlainShapes, OfFactoriesAreThoseOfTheCpu) {
  auto expect_made = [](const char* name, const char* overload, IValues arguments,
                        const c10::IValue& dtype) {
    for (const c10::IValue& value : {dtype, c10::IValue(), c10::IValue(), c10::IValue()}) {
      arguments.push_back(value);  // dtype, layout, device, pinned memory
    }
    expect_plain(name, arguments, overload);
  };
  for (const auto& ends : {std::array<int64_t, 3>{0, 9, 3}, {0, 10, 3}, {5, -6, -2}, {2, 2, 1}}) {
    expect_made("aten::arange", "start_step", {ends[0], ends[1], ends[2]}, c10::IValue());
    expect_made("aten::arange", "start_step", {ends[0], ends[1], ends[2]}, at::kFloat);
    const std::array<double, 3> fractions = {ends[0] - 0.25, ends[1] + 0.5, ends[2] * 0.3};
    expect_made("aten::arange", "start_step", {fractions[0], fractions[1], fractions[2]},
                c10::IValue());
  }
  expect_made("aten::arange", "", {int64_t{5}}, c10::IValue());
  expect_made("aten::arange", "", {4.5}, at::kHalf);
  expect_made("aten::arange", "start", {int64_t{2}, 5.0}, c10::IValue());
  expect_made("aten::linspace", "", {0.5, int64_t{2}, int64_t{7}}, c10::IValue());
  expect_made("aten::logspace", "", {0.5, int64_t{2}, int64_t{7}, 2.0}, at::kDouble);
  for (int64_t offset : {-3, -1, 0, 1, 4}) {
    for (const char* name : {"aten::tril_indices", "aten::triu_indices"}) {
      expect_made(name, "", {int64_t{3}, int64_t{5}, offset}, at::kLong);
      expect_made(name, "", {int64_t{4}, int64_t{2}, std::min<int64_t>(offset, 3)}, at::kInt);
    }
  }
  expect_made("aten::eye", "", {int64_t{3}}, c10::IValue());
  expect_made("aten::eye", "m", {int64_t{3}, int64_t{4}}, at::kDouble);
  expect_made("aten::randperm", "", {int64_t{3}}, at::kLong);
  expect_made("aten::randperm", "generator", {int64_t{3}, c10::IValue()}, c10::IValue(at::kLong));
  EXPECT_FALSE(plain_results(find("aten::arange", "start_step"),
                             {int64_t{0}, int64_t{4}, int64_t{-1}, c10::IValue(), c10::IValue(),
                              c10::IValue(), c10::IValue()}));
}

TEST(PlainShapes, OfElementsAreThoseOfTheCpu) {
  const Tensor x = at::zeros({2, 4, 6, 6}), row = at::zeros({6, 1});
  for (const char* name : {"aten::relu", "aten::abs", "aten::isnan", "aten::logical_not"}) {
    expect_plain(name, {x});
  }
  for (const char* name : {"aten::logical_and", "aten::logical_or"}) {
    expect_plain(name, {x, row});
    expect_plain(name, {row, x});
  }
  expect_plain("aten::logical_and", {x > 0, row.to(at::kLong)});
  expect_plain("aten::logsumexp", {x, std::vector<int64_t>{1, -1}, false});
  expect_plain("aten::logsumexp", {x.to(at::kBFloat16), std::vector<int64_t>{0}, true});
  expect_plain("aten::relu", {x.to(at::kHalf)});
  expect_plain("aten::rsub", {row, x, 1}, "Tensor");
  expect_plain("aten::rsub", {x, 1, 1}, "Scalar");
  expect_plain("aten::fill", {x, 2}, "Scalar");
  expect_plain("aten::where", {row > 0, at::zeros({}), x}, "self");
  expect_plain("aten::masked_fill", {x, row > 0, 1.5}, "Scalar");
  expect_plain("aten::stack", {c10::List<Tensor>({x, x, x}), int64_t{-2}});
  for (int64_t reduction : {0, 1, 2}) {
    expect_plain("aten::binary_cross_entropy_with_logits",
                 {x, x, c10::IValue(), c10::IValue(), reduction});
  }
  const Tensor four = at::zeros({4}), statistics = at::zeros({2, 2});
  const int64_t n = 2, c = 4, pixels = 36, groups = 2;
  expect_plain("aten::native_group_norm", {x, four, c10::IValue(), n, c, pixels, groups, 1e-5});
  expect_plain("aten::native_group_norm_backward",
               {x, x, statistics, statistics, four, n, c, pixels, groups, mask(true, true, true)});
}

// Gradients as they come from layers, and as sums make them.
TEST(PlainShapes, OfActivationsAndLossesAreThoseOfTheCpu) {
  const Tensor x = at::full({2, 4, 6}, 0.5), none;
  for (const char* name : {"aten::hardswish", "aten::log_sigmoid_forward"}) {
    expect_plain(name, {x});
  }
  expect_plain("aten::hardtanh", {x, -1, 1});
  expect_plain("aten::logit", {x, c10::IValue()});
  expect_plain("aten::exponential", {x, 1.0, c10::IValue()});
  for (const char* name : {"aten::normal_", "aten::uniform_"}) {  // what randn_like and others call
    expect_plain(name, {x.clone(), 0.0, 1.0, c10::IValue()});
  }
  for (int64_t reduction : {0, 1, 2}) {
    expect_plain("aten::huber_loss", {x, x, reduction, 1.0});
    expect_plain("aten::binary_cross_entropy", {x, x, c10::IValue(), reduction});
  }
  for (const Tensor& grad : {x, at::ones({}).expand_as(x)}) {
    expect_plain("aten::hardswish_backward", {grad, x});
    expect_plain("aten::mish_backward", {grad, x});
    expect_plain("aten::hardtanh_backward", {grad, x, -1, 1});
    expect_plain("aten::log_sigmoid_backward", {grad, x, x});
    expect_plain("aten::_prelu_kernel_backward", {grad, x, x});
    expect_plain("aten::mse_loss_backward", {grad, x, x, int64_t{0}});
    expect_plain("aten::huber_loss_backward", {grad, x, x, int64_t{0}, 1.0});
    expect_plain("aten::smooth_l1_loss_backward", {grad, x, x, int64_t{0}, 1.0});
    expect_plain("aten::binary_cross_entropy_backward", {grad, x, x, c10::IValue(), int64_t{0}});
    const Tensor four = at::ones({4}), last = at::ones({6}), rows = at::ones({2, 4, 1});
    expect_plain("aten::native_batch_norm_backward",
                 {grad, x, four, none, none, four, four, true, 1e-5, mask(true, true, true)});
    expect_plain("aten::native_layer_norm_backward", {grad, x, std::vector<int64_t>{6}, rows, rows,
                                                      last, last, mask(true, true, true)});
  }
  for (const Tensor& half : {at::ones({2, 2, 6}), at::ones({}).expand({2, 2, 6})}) {
    expect_plain("aten::glu_backward", {half, x, int64_t{1}});
  }
  expect_plain("aten::smooth_l1_loss_backward", {at::ones({}), x, x, int64_t{1}, 1.0});
  expect_plain("aten::_native_batch_norm_legit", {x, none, none, true, 0.1, 1e-5}, "no_stats");
  const Tensor image = at::zeros({2, 3, 5, 5}),
               grid = at::zeros({2, 2, 4, 7}).permute({0, 2, 3, 1});
  expect_plain("aten::grid_sampler_2d", {image, grid, int64_t{0}, int64_t{0}, false});
}

TEST(PlainShapes, MistakesAreLeftToPyTorch) {
  const Tensor x = at::zeros({2, 4, 6, 6}), weight = at::zeros({8, 4, 3, 3});
  const std::vector<int64_t> one{1, 1}, none{0, 0};
  auto refuses = [](const char* name, const IValues& arguments) {
    return !plain_results(find(name), on_meta(arguments));
  };
  auto convolution = [&](const Tensor& image, const Tensor& bias, int64_t groups) {
    return IValues{image, weight, bias, one, none, one, false, none, groups};
  };
  EXPECT_TRUE(refuses("aten::convolution", convolution(x, at::zeros({4}), 1)));
  EXPECT_TRUE(refuses("aten::convolution", convolution(x, kNone, 2)));
  EXPECT_TRUE(refuses("aten::convolution", convolution(x.to(at::kBFloat16), kNone, 1)));
  EXPECT_TRUE(refuses("aten::logsumexp", {x, std::vector<int64_t>{1, 1}, false}));
  EXPECT_TRUE(refuses("aten::convolution", convolution(x.slice(2, 0, 2), kNone, 1)));
  EXPECT_TRUE(refuses("aten::relu", {x.to(at::kBool)}));
  EXPECT_FALSE(
      plain_results(find("aten::rsub", "Scalar"), on_meta({x, c10::complex<double>(1, 1), 1})));
  EXPECT_TRUE(refuses("aten::logical_and", {x, at::zeros({5})}));
  EXPECT_TRUE(refuses("aten::native_group_norm",
                      {x, kNone, kNone, int64_t{2}, int64_t{4}, int64_t{36}, int64_t{3}, 1e-5}));
  EXPECT_TRUE(refuses("aten::native_layer_norm", {x, std::vector<int64_t>{5}, kNone, kNone, 1e-5}));
  EXPECT_TRUE(refuses("aten::select_backward",
                      {at::zeros({2, 6, 6}), x.sizes().vec(), int64_t{1}, int64_t{4}}));
}

TEST(StructuredKernels, TellResultsWithoutData) {
  const Tensor x = at::zeros({3, 4}), y = at::zeros({4, 5}), row = at::zeros({1, 4});
  auto expect = [](const c10::OperatorHandle& op, const IValues& arguments) {
    ASSERT_TRUE(is_structured(op)) << op.schema();
    expect_as_on_cpu(op, arguments, results_in_cpp(op, on_meta(arguments)));
  };
  expect(find("aten::mm"), {x, y});
  expect(find("aten::add", "Tensor"), {x.t().contiguous().t(), row, 1});
  expect(find("aten::add_", "Tensor"), {x.clone(), row, 1});
  expect(find("aten::sum", "dim_IntList"), {x, std::vector<int64_t>{1}, true, c10::IValue()});
  expect(find("aten::topk"), {x, int64_t{2}, int64_t{-1}, true, true});
  expect(find("aten::nll_loss_forward"),
         {x, at::zeros({3}, at::kLong), kNone, int64_t{1}, int64_t{-100}});
  EXPECT_FALSE(results_in_cpp(find("aten::_cdist_forward"), on_meta({x, x, 2.0, c10::IValue()})));
  EXPECT_THROW(results_in_cpp(find("aten::mm"), on_meta({x, x})), c10::Error);
  EXPECT_THROW(results_in_cpp(find("aten::add_", "Tensor"), on_meta({row, x, 1})), c10::Error);
}

// As on the devices that PyTorch knows, and not as on the CPU.
TEST(PlainShapes, StatisticsOf16BitsHave32) {
  const Tensor x = at::zeros({2, 6}, at::kBFloat16);
  auto results = plain_results(find("aten::native_layer_norm"),
                               on_meta({x, std::vector<int64_t>{6}, kNone, kNone, 1e-5}));
  ASSERT_TRUE(results.has_value());
  EXPECT_EQ((*results)[0].toTensor().scalar_type(), at::kBFloat16);
  EXPECT_EQ((*results)[1].toTensor().scalar_type(), at::kFloat);
}

// As in autocast: parameters and statistics have 32 bits.
TEST(PlainShapes, OfBatchNormIn16BitsAreThoseOfTheCpu) {
  const Tensor wide = at::ones({3});
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Tensor x = at::zeros({2, 3, 4, 4}, dtype);
    expect_plain("aten::_native_batch_norm_legit",
                 {x, wide, wide, wide.clone(), wide.clone(), true, 0.1, 1e-5});
    expect_plain("aten::_native_batch_norm_legit", {x, wide, wide, true, 0.1, 1e-5}, "no_stats");
    expect_plain("aten::native_batch_norm_backward", {x, x, wide, wide, wide, wide, wide, true,
                                                      1e-5, c10::List<bool>({true, true, true})});
    const Tensor weight = wide.to(dtype);
    expect_plain("aten::native_group_norm",
                 {x, weight, weight, int64_t{2}, int64_t{3}, int64_t{16}, int64_t{3}, 1e-5});
  }
}

// Each of the operators that these consist of is answered in C++, too.
TEST(CompositeKernels, TellResultsWithoutData) {
  const Tensor x = at::zeros({3, 4});
  auto expect = [](const c10::OperatorHandle& op, const IValues& arguments) {
    expect_as_on_cpu(op, arguments, results_in_cpp(op, on_meta(arguments)));
  };
  expect(find("aten::div", "Scalar"), {x, 2});
  expect(find("aten::sort"), {x, int64_t{-1}, false});
  expect(find("aten::_foreach_mul", "Scalar"), {c10::List<Tensor>({x, x}), 2.0});
}

}  // namespace

}  // namespace torch_xla
