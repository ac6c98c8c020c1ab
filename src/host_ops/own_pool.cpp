#include "host_ops/own_pool.h"

#include "host_ops/avg_pool.h"
#include "host_ops/lanes.h"
#include "host_ops/max_pool.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <limits>

namespace torch_xla {

namespace {

using at::Tensor;
using torch::jit::Stack;

struct OwnPool {
  std::string_view op;
  CallPiece::Kernel write;
  // The first so many arguments, the last of which is what is pooled. The kernel's sizes follow,
  // and the steps.
  size_t images;
  size_t results;
  int64_t most_step;  // farther apart they have few numbers in common: PyTorch's is as fast
};

constexpr int64_t kAnyStep = std::numeric_limits<int64_t>::max();

constexpr std::array kPools = {
    OwnPool{"aten::max_pool2d_with_indices", &write_max_pool, 1, 2, kAnyStep},
    OwnPool{"aten::avg_pool2d", &write_avg_pool, 1, 1, 4},
    OwnPool{"aten::avg_pool2d_backward", &write_avg_pool_gradient, 2, 1, 3}};

bool takes(const Tensor& images, at::ScalarType dtype, int64_t dims) {
  constexpr int64_t kMostPixels = std::numeric_limits<int32_t>::max() / 2;
  return images.scalar_type() == dtype && has_lanes(dtype) && images.is_contiguous() &&
         images.numel() > 0 && images.dim() == dims && (dims == 3 || dims == 4) &&
         images.size(-1) * images.size(-2) <= kMostPixels;
}

// From one window of a row to the next.
int64_t step_of(const OwnPool& pool, const Stack& arguments) {
  const std::vector<int64_t> kernel = arguments[pool.images].toIntVector();
  const std::vector<int64_t> steps = arguments[pool.images + 1].toIntVector();
  const std::vector<int64_t>& given = steps.empty() ? kernel : steps;
  return given.empty() ? 0 : given.back();
}

const OwnPool* own_pool(const c10::OperatorHandle& op, const Stack& arguments) {
  constexpr int64_t kFewWindows = 8;  // of a row: the lanes would be for nothing
  const auto* pool = std::find_if(kPools.begin(), kPools.end(), [&](const OwnPool& known) {
    return known.op == op.operator_name().name;
  });
  if (pool == kPools.end()) {
    return nullptr;
  }
  const Tensor& pooled = arguments[pool->images - 1].toTensor();
  for (size_t i = 0; i < pool->images; ++i) {
    if (!takes(arguments[i].toTensor(), pooled.scalar_type(), pooled.dim())) {
      return nullptr;
    }
  }
  const int64_t step = step_of(*pool, arguments);
  const bool is_worth_it = pooled.numel() >= kFewForOwnPool && step <= pool->most_step &&
                           pooled.size(-1) >= kFewWindows * step;
  return is_worth_it ? pool : nullptr;
}

// Images, or channels where these are as many for each thread.
std::vector<CallPiece> divided(const OwnPool& pool, const Stack& arguments, int64_t threads) {
  constexpr int64_t kWorthAThread = 1 << 14;  // numbers
  const Tensor& pooled = arguments[pool.images - 1].toTensor();
  const int64_t count = std::min(threads, pooled.numel() / kWorthAThread + 1);
  const bool by_channels =
      pooled.dim() == 4 && pooled.size(0) % count != 0 && pooled.size(1) >= pooled.size(0);
  const std::array<size_t, 2> images = {0, 1};
  return pieces_along(by_channels ? 1 : 0, arguments, {images.data(), pool.images}, count,
                      pool.write, pool.results);
}

// PyTorch says what is wrong with the arguments, or which sizes the results have.
std::vector<Tensor> results_of(const c10::OperatorHandle& op, Stack arguments) {
  for (c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      argument = argument.toTensor().to(at::kMeta);
    }
  }
  op.callBoxed(&arguments);
  std::vector<Tensor> results;
  for (const c10::IValue& like : arguments) {
    const Tensor& result = like.toTensor();
    results.push_back(at::empty(result.sizes(), result.options().device(at::kCPU)));
  }
  return results;
}

}  // namespace

std::vector<CallPiece> divide_own_pool(const c10::OperatorHandle& op, const Stack& arguments,
                                       int64_t threads) {
  const OwnPool* pool = own_pool(op, arguments);
  return pool != nullptr ? divided(*pool, arguments, threads) : std::vector<CallPiece>();
}

bool call_own_pool(const c10::OperatorHandle& op, Stack& stack) {
  const OwnPool* pool = own_pool(op, stack);
  if (pool == nullptr) {
    return false;
  }
  const std::vector<Tensor> results = results_of(op, stack);
  const std::vector<CallPiece> pieces = divided(*pool, stack, at::get_num_threads());
  run_in_team(pieces, results);
  stack.assign(results.begin(), results.end());
  return true;
}

}  // namespace torch_xla
