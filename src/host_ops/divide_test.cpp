// The pieces of a call compute what the call computes, on workers of every kind.
#include "host_ops/divide.h"

#include "base/spare_hands.h"
#include "host_ops/workers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>

namespace torch_xla {
namespace {

using torch::Tensor;
using torch::jit::Stack;

class Threads final : public Workers {
 public:
  explicit Threads(int64_t count) : count_(count) {}
  ~Threads() override {
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  int64_t count() const override { return count_; }
  void schedule(std::function<void()> task) override { threads_.emplace_back(std::move(task)); }

 private:
  const int64_t count_;
  std::vector<std::thread> threads_;
};

// Workers that are all busy until the call is over.
class Late final : public Workers {
 public:
  ~Late() override {
    for (const auto& task : tasks_) {
      task();
    }
  }
  int64_t count() const override { return 2; }
  void schedule(std::function<void()> task) override { tasks_.push_back(std::move(task)); }

 private:
  std::vector<std::function<void()>> tasks_;
};

TEST(Workers, RunEachPieceOnce) {
  std::vector<std::atomic<int>> runs(100);
  {
    Threads workers(4);
    run_pieces(workers, runs.size(), [&](size_t i) { ++runs[i]; });
    for (const auto& count : runs) {
      EXPECT_EQ(count, 1);
    }
  }
  Late late;
  run_pieces(late, runs.size(), [&](size_t i) { ++runs[i]; });
  for (const auto& count : runs) {
    EXPECT_EQ(count, 2);
  }
}

TEST(Workers, NothingToDoIsDone) {
  Late late;
  run_pieces(late, 0, [](size_t) { FAIL(); });
}

TEST(Workers, AnErrorReachesTheCallerAfterTheOthersAreDone) {
  std::atomic<int> runs{0};
  Threads workers(3);
  auto run = [&](size_t i) {
    ++runs;
    if (i == 1) {
      throw std::runtime_error("piece one");
    }
  };
  EXPECT_THROW(run_pieces(workers, 8, run), std::runtime_error);
  EXPECT_EQ(runs, 8);
}

TEST(Workers, APieceHasOneThreadAndTheCallerItsOwnNumberAfterwards) {
  const int before = at::get_num_threads();
  std::atomic<int> most{0};
  Threads workers(2);
  run_pieces(workers, 4, [&](size_t) { most = std::max(most.load(), at::get_num_threads()); });
  EXPECT_EQ(most, 1);
  EXPECT_EQ(at::get_num_threads(), before);
}

// Sums of subnormal numbers are nothing where they are off.
bool has_subnormals() {
  const volatile float small = 1e-39f;
  return small + small > 0;
}

TEST(Workers, AThreadThatWaitsTakesPartAsTheCallerWould) {
  std::atomic<bool> ended{false};
  bool had_modes = true, has_modes = false, had_subnormals = true;
  std::thread waiting([&] {
    const c10::impl::IncludeDispatchKeyGuard mode(c10::DispatchKey::Python);
    SpareHand hand;
    while (!ended) {
      hand.help();
    }
    has_modes =
        c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python) && has_subnormals();
  });
  std::atomic<int> begun{0};
  Late late;
  at::globalContext().setFlushDenormal(true);
  run_pieces(late, 2, [&](size_t) {
    for (++begun; begun < 2;) {  // each needs the other one
      std::this_thread::yield();
    }
    if (std::this_thread::get_id() == waiting.get_id()) {
      had_modes = c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python);
      had_subnormals = has_subnormals();
    }
  });
  at::globalContext().setFlushDenormal(false);
  ended = true;
  waiting.join();
  EXPECT_FALSE(had_modes);
  EXPECT_FALSE(had_subnormals);
  EXPECT_TRUE(has_modes);
}

// Results in one go and in pieces.
void compare_pieces(const char* name, const Stack& arguments, int64_t threads, bool must_divide,
                    double tolerance) {
  c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  torch::NoGradGuard guard;
  Stack whole = arguments;
  op.callBoxed(&whole);
  std::vector<CallPiece> pieces = divide(op, arguments, threads);
  EXPECT_TRUE(!must_divide || !pieces.empty());
  std::vector<Tensor> merged;
  for (const c10::IValue& value : whole) {
    bool defined = value.isTensor() && value.toTensor().defined();
    merged.push_back(defined ? torch::full_like(value.toTensor(),
                                                value.toTensor().is_floating_point() ? NAN : -1)
                             : Tensor());
  }
  std::set<size_t> wanted;
  for (CallPiece& piece : pieces) {
    if (piece.kernel != nullptr) {
      std::vector<Tensor> parts;
      for (const CallPiece::Part& part : piece.parts) {
        wanted.insert(part.result);
        parts.push_back(merged[part.result].narrow(part.dim, part.start, part.length));
      }
      piece.kernel(piece.arguments, parts);
      continue;
    }
    op.callBoxed(&piece.arguments);
    for (const CallPiece::Part& part : piece.parts) {
      wanted.insert(part.result);
      merged[part.result]
          .narrow(part.dim, part.start, part.length)
          .copy_(piece.arguments[part.result].toTensor());
    }
  }
  for (size_t i : wanted) {
    EXPECT_TRUE(merged[i].allclose(whole[i].toTensor(), tolerance, 10 * tolerance))
        << name << ", result " << i;
  }
}

struct Case {
  std::vector<int64_t> input, weight;
  int64_t stride = 1, padding = 0, groups = 1;
  bool transposed = false, bias = false;
  torch::Dtype dtype = torch::kFloat;
};

// All large enough to be divided.
std::vector<Case> cases() {
  return {{{8, 16, 16, 16}, {32, 16, 3, 3}, 1, 1},
          {{8, 16, 16, 16}, {32, 16, 3, 3}, 2, 1, 1, false, true},
          {{5, 128, 4, 4}, {130, 128, 3, 3}, 1, 1, 1, false, true},
          {{1, 64, 12, 12}, {64, 64, 3, 3}, 1, 0},
          {{6, 32, 16, 16}, {32, 8, 3, 3}, 1, 1, 4, false, true},
          {{1, 64, 20, 20}, {96, 16, 3, 3}, 1, 1, 4, false, true},
          {{4, 32, 10, 10}, {32, 24, 3, 3}, 2, 1, 1, true, true},
          {{4, 48, 128}, {64, 48, 5}, 1, 2},
          {{4, 8, 8, 8, 8}, {16, 8, 3, 3, 3}, 1, 1},
          {{8, 32, 16, 16}, {32, 32, 3, 3}, 1, 1, 1, false, true, torch::kBFloat16}};
}

class Division : public testing::TestWithParam<std::tuple<size_t, int>> {
 protected:
  Division()
      : case_(cases()[std::get<0>(GetParam())]),
        threads_(std::get<1>(GetParam())),
        input_(torch::randn(case_.input).to(case_.dtype)),
        weight_(torch::randn(case_.weight).to(case_.dtype)) {
    const int64_t channels =
        case_.weight[case_.transposed ? 1 : 0] * (case_.transposed ? case_.groups : 1);
    bias_ = case_.bias ? torch::randn({channels}).to(case_.dtype) : Tensor();
  }

  Stack geometry() const {
    const size_t rank = case_.input.size() - 2;
    return {std::vector<int64_t>(rank, case_.stride),
            std::vector<int64_t>(rank, case_.padding),
            std::vector<int64_t>(rank, 1),
            case_.transposed,
            std::vector<int64_t>(rank, 0),
            case_.groups};
  }

  void compare(const char* name, const Stack& arguments, bool must_divide) {
    const double tolerance = case_.dtype == torch::kFloat ? 1e-3 : 0.1;
    compare_pieces(name, arguments, threads_, must_divide, tolerance);
  }

  const Case case_;
  const int64_t threads_;
  Tensor input_, weight_, bias_;
};

TEST_P(Division, OfAConvolution) {
  Stack arguments = {input_, weight_, bias_.defined() ? c10::IValue(bias_) : c10::IValue()};
  Stack rest = geometry();
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  compare("aten::convolution", arguments, threads_ == 2);
}

TEST_P(Division, OfItsGradients) {
  Tensor output = torch::convolution(input_, weight_, bias_, geometry()[0].toIntVector(),
                                     geometry()[1].toIntVector(), geometry()[2].toIntVector(),
                                     case_.transposed, geometry()[4].toIntVector(), case_.groups);
  for (const std::array<bool, 3>& wanted : {std::array<bool, 3>{true, true, case_.bias},
                                            {true, false, false},
                                            {false, true, case_.bias},
                                            {false, false, case_.bias}}) {
    c10::IValue sizes = case_.bias ? c10::IValue(bias_.sizes().vec()) : c10::IValue();
    Stack arguments = {torch::randn_like(output), input_, weight_, sizes};
    Stack rest = geometry();
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    arguments.emplace_back(c10::List<bool>({wanted[0], wanted[1], wanted[2]}));
    compare("aten::convolution_backward", arguments, threads_ == 2 && wanted[0] && wanted[1]);
  }
}

TEST(Divide, DimensionsThatAnOperatorDoesNotWorkAlong) {
  const Tensor x = torch::randn({5, 4096}), z = torch::randn({4, 64, 64}, torch::kComplexFloat);
  const c10::IValue first(std::vector<int64_t>{0}), last(std::vector<int64_t>{1});
  compare_pieces("aten::sort", {x, -1, true}, 2, true, 0);
  compare_pieces("aten::topk", {x, 7, 1, true, true}, 2, true, 0);
  compare_pieces("aten::_fft_r2c", {x, last, 0, true}, 2, true, 1e-4);
  compare_pieces("aten::_fft_c2c", {z, std::vector<int64_t>{1, 2}, 0, true}, 2, true, 1e-4);
  const auto sort = c10::Dispatcher::singleton().findSchemaOrThrow("aten::sort", "");
  EXPECT_TRUE(divide(sort, {x.reshape({-1}), -1, true}, 2).empty());
  EXPECT_TRUE(divide(sort, {x.reshape({1, -1}), 1, true}, 2).empty());
  for (int64_t dim : {0, -2, 1}) {
    compare_pieces("aten::sort", {x, dim, true}, 2, true, 0);
    compare_pieces("aten::cumsum", {x, dim, c10::IValue()}, 2, true, 0);
    compare_pieces("aten::cumprod", {x, dim, c10::IValue()}, 2, true, 0);
  }
  compare_pieces("aten::_fft_c2c", {z, first, 0, true}, 2, true, 1e-4);
}

TEST(Divide, Pads) {
  const Tensor x = torch::randn({3, 12, 40, 50});
  using Amounts = std::vector<int64_t>;
  compare_pieces("aten::constant_pad_nd", {x, Amounts{1, 2, 0, 3}, 1.5}, 2, true, 0);
  compare_pieces("aten::constant_pad_nd", {x, Amounts{0, 0, 0, 0, 1, 0, 0, 2}, 0.0}, 2, true, 0);
  compare_pieces("aten::reflection_pad2d", {x, Amounts{1, 2, 0, 3}}, 2, true, 0);
  compare_pieces("aten::replication_pad2d", {x[0], Amounts{1, 2, 0, 3}}, 2, true, 0);
  const auto pad = c10::Dispatcher::singleton().findSchemaOrThrow("aten::constant_pad_nd", "");
  EXPECT_TRUE(divide(pad, {x, Amounts{-1, 2}, 0.0}, 2).empty());
  EXPECT_TRUE(divide(pad, {x.reshape({-1}), Amounts{1, 2}, 0.0}, 2).empty());
}

TEST(Divide, GradientsOfSlices) {
  const std::vector<int64_t> sizes = {3, 80, 200};
  compare_pieces("aten::slice_backward", {torch::randn({3, 80, 100}), sizes, 2, 50, 150, 1}, 2,
                 true, 0);
  compare_pieces("aten::slice_backward", {torch::randn({3, 40, 200}), sizes, -2, 1, 80, 2}, 2, true,
                 0);
}

TEST(Divide, SamplesOfImages) {
  const Tensor images = torch::randn({3, 5, 20, 20}), grid = torch::rand({3, 64, 64, 2}) * 2 - 1;
  compare_pieces("aten::grid_sampler_2d", {images, grid, 0, 0, false}, 2, true, 0);
}

TEST(Divide, FunctionsOfElements) {
  const Tensor x = torch::randn({1, 300, 70}), row = torch::rand({70}) + 0.5;
  for (const char* function : {"aten::sin", "aten::cos", "aten::atan"}) {
    compare_pieces(function, {x}, 2, true, 0);
    compare_pieces(function, {x.transpose(1, 2)}, 2, true, 0);
  }
  compare_pieces("aten::atan2", {x, row}, 2, true, 0);
  compare_pieces("aten::atan2", {row, x}, 2, true, 0);
  compare_pieces("aten::floor_divide", {x, x.select(1, 0)}, 2, true, 0);
  const auto sine = c10::Dispatcher::singleton().findSchemaOrThrow("aten::sin", "");
  EXPECT_TRUE(divide(sine, {row}, 2).empty());
}

TEST(Divide, ProductsByBatchesRowsOrColumns) {
  for (auto [rows, columns] : {std::pair(200, 90), std::pair(90, 200)}) {
    const Tensor x = torch::randn({rows, 100}), y = torch::randn({columns, 100}).t();
    compare_pieces("aten::mm", {x, y}, 2, true, 1e-4);
    for (const Tensor& summand :
         {torch::randn({columns}), torch::randn({rows, 1}), torch::randn({rows, columns})}) {
      compare_pieces("aten::addmm", {summand, x, y, 0.5, 2}, 2, true, 1e-4);
    }
    for (int64_t batches : {1, 3}) {
      const Tensor many = x.expand({batches, rows, 100}).contiguous();
      const Tensor others = y.expand({batches, 100, columns});
      compare_pieces("aten::bmm", {many, others}, 2, true, 1e-4);
      compare_pieces("aten::baddbmm", {torch::randn({batches, 1, columns}), many, others, 1, 1}, 2,
                     true, 1e-4);
    }
  }
}

TEST(Divide, AttentionByImagesOrHeads) {
  for (int64_t images : {3, 1}) {
    const std::vector<int64_t> sizes = {images, 6, 128, 32};
    Stack inputs = {torch::randn(sizes), torch::randn(sizes), torch::randn(sizes)};
    for (const Tensor& mask :
         {Tensor(), torch::randn({128, 128}), torch::randn({images, 6, 128, 128}),
          torch::randn({images, 1, 128, 128})}) {
      const c10::IValue given = mask.defined() ? c10::IValue(mask) : c10::IValue();
      Stack forward = inputs;
      forward.insert(forward.end(), {0.0, false, given, c10::IValue()});
      compare_pieces("aten::_scaled_dot_product_flash_attention_for_cpu", forward, 2, true, 0);
      auto [result, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
          inputs[0].toTensor(), inputs[1].toTensor(), inputs[2].toTensor(), 0.0, false,
          mask.defined() ? std::optional(mask) : std::nullopt);
      Stack backward = {torch::randn(sizes)};
      backward.insert(backward.end(), inputs.begin(), inputs.end());
      backward.insert(backward.end(), {result, logsumexp, 0.0, false, given, c10::IValue()});
      compare_pieces("aten::_scaled_dot_product_flash_attention_for_cpu_backward", backward, 2,
                     true, 0);
    }
  }
}

Stack batch_norm_gradient(const std::vector<int64_t>& sizes, torch::Dtype dtype, bool weighted,
                          const std::array<bool, 3>& wanted) {
  const Tensor x = (torch::randn(sizes) + 3).to(dtype), weight = torch::randn({sizes[1]});
  const Tensor mean = torch::zeros({sizes[1]}), variance = torch::ones({sizes[1]});
  auto [result, saved_mean, inverse] = torch::native_batch_norm(x, weighted ? weight : Tensor(), {},
                                                                mean, variance, true, 0.1, 1e-5);
  return {torch::randn(sizes).to(dtype),
          x,
          weighted ? c10::IValue(weight) : c10::IValue(Tensor()),
          mean,
          variance,
          saved_mean,
          inverse,
          true,
          1e-5,
          c10::List<bool>({wanted[0], wanted[1], wanted[2]})};
}

TEST(Divide, BatchNormsGradientByChannels) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{8, 6, 20, 20}, {3, 40, 13, 13}, {4, 64, 100}, {2, 33, 4, 8, 8}}) {
    for (int64_t threads : {1, 2, 5}) {
      compare_pieces("aten::native_batch_norm_backward",
                     batch_norm_gradient(sizes, torch::kFloat, true, {true, true, true}), threads,
                     true, 1e-3);
    }
    compare_pieces("aten::native_batch_norm_backward",
                   batch_norm_gradient(sizes, torch::kFloat, false, {true, false, false}), 2, true,
                   1e-3);
    compare_pieces("aten::native_batch_norm_backward",
                   batch_norm_gradient(sizes, torch::kFloat, true, {false, true, true}), 2, true,
                   1e-3);
    for (torch::Dtype dtype : {torch::kBFloat16, torch::kHalf}) {
      compare_pieces("aten::native_batch_norm_backward",
                     batch_norm_gradient(sizes, dtype, true, {true, true, true}), 2, true, 0.03);
    }
  }
  Stack few = batch_norm_gradient({8, 6, 2, 2}, torch::kFloat, true, {true, true, true});
  Stack strided = batch_norm_gradient({8, 6, 20, 20}, torch::kFloat, true, {true, true, true});
  strided[0] = strided[0].toTensor().contiguous(at::MemoryFormat::ChannelsLast);
  Stack evaluated = batch_norm_gradient({8, 6, 20, 20}, torch::kFloat, true, {true, true, true});
  evaluated[7] = false;
  const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::native_batch_norm_backward", "");
  for (const Stack& arguments : {few, strided, evaluated}) {
    EXPECT_TRUE(divide(op, arguments, 2).empty());
  }
}

TEST(Divide, ResizingByImagesOrChannels) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{5, 3, 40, 40}, {1, 33, 30, 30}, {2, 16, 31, 33}}) {
    const std::vector<int64_t> larger = {61, 47};
    const Tensor x = torch::randn(sizes), gradient = torch::randn({sizes[0], sizes[1], 61, 47});
    for (const char* op : {"aten::upsample_bilinear2d", "aten::upsample_bicubic2d"}) {
      compare_pieces(op, {x, larger, false, c10::IValue(), c10::IValue()}, 2, true, 1e-6);
      compare_pieces((std::string(op) + "_backward").c_str(),
                     {gradient, larger, sizes, true, c10::IValue(), c10::IValue()}, 2, true, 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Division,
                         testing::Combine(testing::Range<size_t>(0, cases().size()),
                                          testing::Values(2, 3, 16)));

}  // namespace
}  // namespace torch_xla
