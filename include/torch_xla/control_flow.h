// Branches and loops that are operations of the program, for libtorch programs:
//
//   auto [last, sums] = torch_xla::scan(
//       [](const auto& carried, const auto& x) -> torch_xla::ScanResults {
//         at::Tensor total = carried[0] + x[0];
//         return {{total}, {total}};
//       },
//       {torch::zeros({3}, xla)}, {xs});
//
// The functions are traced at each call (inside assume_pure: once), as pure functions are: they may
// read, and change, tensors of their surroundings, and draw random numbers. Gradients flow through
// all of it; those of a while_loop need its length, which is read. See docs/control_flow.md.
// Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

namespace torch_xla {

using TensorFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& arguments)>;

// The results of `on_true(operands)` where the predicate, one bool on the device, is true; else
// those of `on_false(operands)`. Both have the same shapes and dtypes.
std::vector<at::Tensor> cond(const at::Tensor& predicate, const TensorFunction& on_true,
                             const TensorFunction& on_false,
                             const std::vector<at::Tensor>& operands);

// `carried = body(carried)` as long as `condition(carried)` is true.
std::vector<at::Tensor> while_loop(
    const std::function<at::Tensor(const std::vector<at::Tensor>& carried)>& condition,
    const TensorFunction& body, const std::vector<at::Tensor>& carried);

// The last carried values, and all slices of results stacked.
using ScanResults = std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>;
using ScanFunction = std::function<ScanResults(const std::vector<at::Tensor>& carried,
                                               const std::vector<at::Tensor>& slices)>;
// `(carried, slices of results) = step(carried, slices of xs)` for each slice.
ScanResults scan(const ScanFunction& step, const std::vector<at::Tensor>& init,
                 const std::vector<at::Tensor>& xs, bool reverse = false);

}  // namespace torch_xla
