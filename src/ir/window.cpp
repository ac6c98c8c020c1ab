#include "ir/window.h"

#include <algorithm>
#include <numeric>

namespace torch_xla {

Runs runs_of(c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides) {
  Runs dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && strides[i] != 0) {
      dims.push_back({sizes[i], strides[i]});
    }
  }
  std::stable_sort(dims.begin(), dims.end(),
                   [](const Run& x, const Run& y) { return x.stride > y.stride; });
  Runs runs;
  for (const Run& dim : dims) {
    if (!runs.empty() && runs.back().stride == dim.count * dim.stride) {
      runs.back() = {runs.back().count * dim.count, dim.stride};
    } else {
      runs.push_back(dim);
    }
  }
  return runs;
}

int64_t span_of(c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) {
      return 0;
    }
    last += (sizes[i] - 1) * strides[i];
  }
  return last + 1;
}

bool crosses_rows(const Runs& runs, int64_t offset) {
  int64_t row = runs.empty() ? 1 : runs[0].stride;
  for (size_t i = 1; i < runs.size(); ++i) {
    if (offset % row + (runs[i].count - 1) * runs[i].stride >= row) {
      return true;
    }
    row = std::gcd(row, runs[i].stride);
  }
  return false;
}

c10::SmallVector<Number, 2> number_starts(Signature& signature) {
  c10::SmallVector<Number, 2> starts;
  for (Window& window : signature.operands) {
    if (window.extent > 0) {
      window.start = static_cast<int32_t>(signature.number_kinds.size());
      signature.number_kinds.push_back(Number::Kind::Int);
      starts.push_back(Number::of(window.offset));
      window.offset = 0;
    }
  }
  return starts;
}

Window window_of_operand(const Signature& signature, size_t operand,
                         c10::ArrayRef<Number> numbers) {
  Window window = signature.operands[operand];
  if (window.start >= 0) {
    window.offset = numbers[window.start].integer;
  }
  return window;
}

}  // namespace torch_xla
