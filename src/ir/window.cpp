#include "ir/window.h"

#include <algorithm>
#include <numeric>

namespace torch_xla {

Runs runs_of(c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides) {
  Runs dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && strides[i] != 0) {
      const auto after = std::find_if(dims.begin(), dims.end(),
                                      [&](const Run& run) { return run.stride < strides[i]; });
      dims.insert(after, {sizes[i], strides[i]});
    }
  }
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

namespace {

// The range of one run, which may take several dimensions: whole ones, and a part of the next.
bool place_run(Run run, int64_t offset, Digits& digits) {
  size_t d = 0;
  while (d + 1 < digits.size() && (digits[d].unit > run.stride || digits[d].size == 1)) {
    ++d;
  }
  if (run.stride % digits[d].unit != 0) {
    return false;
  }
  int64_t step = run.stride / digits[d].unit;
  for (;; --d) {
    Digit& digit = digits[d];
    if (digit.span > 1) {
      return false;  // another run has taken it
    }
    int64_t start = offset / digit.unit % digit.size;
    int64_t span = (run.count - 1) * step + 1;
    if (start + span <= digit.size) {
      digit.span = span;
      return true;
    }
    if (step != 1 || start != 0 || run.count % digit.size != 0 || d == 0) {
      return false;
    }
    digit.span = digit.size;
    run.count /= digit.size;
  }
}

}  // namespace

std::optional<Digits> digits_in_frame(const Runs& runs, int64_t offset,
                                      c10::ArrayRef<int64_t> frame) {
  Digits digits;
  Dims units = row_major_strides(frame);
  for (size_t i = 0; i < frame.size(); ++i) {
    digits.push_back({frame[i], units[i], 1});
  }
  for (const Run& run : runs) {
    if (digits.empty() || !place_run(run, offset, digits)) {
      return std::nullopt;
    }
  }
  return digits;
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
