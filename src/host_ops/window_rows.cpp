#include "host_ops/window_rows.h"

#include "host_ops/kernel_call.h"

#include <ATen/Parallel.h>

namespace torch_xla {

void run_on_planes(c10::ArrayRef<at::Tensor> tensors,
                   c10::function_ref<void(c10::ArrayRef<at::Tensor> parts)> run) {
  constexpr int64_t kWorthAThread = 1 << 14;  // numbers
  const at::Tensor& first = tensors.front();
  const int64_t pixels = first.size(-1) * first.size(-2), planes = first.numel() / pixels;
  at::parallel_for(0, planes, kWorthAThread / pixels + 1, [&](int64_t begin, int64_t end) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& tensor : tensors) {
      const at::Tensor flat = tensor.view({planes, tensor.size(-2), tensor.size(-1)});
      parts.push_back(narrowed(flat, 0, begin, end - begin));
    }
    run(parts);
  });
}

}  // namespace torch_xla
