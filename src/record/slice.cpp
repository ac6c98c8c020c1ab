#include "record/slice.h"

#include <algorithm>

namespace torch_xla {

namespace {

int64_t size_of(const c10::IValue& sized, int64_t dim) {
  return sized.isTensor() ? sized.toTensor().size(dim) : sized.toListRef()[dim].toInt();
}

int64_t rank_of(const c10::IValue& sized) {
  return sized.isTensor() ? sized.toTensor().dim() : static_cast<int64_t>(sized.toListRef().size());
}

bool is_within(int64_t value, int64_t low, int64_t high) { return low <= value && value <= high; }

// Python's start:end in a dimension of `size`, up to the last element a step of `step` meets.
SliceRange range_of(const c10::IValue& start, const c10::IValue& end, int64_t step, int64_t size) {
  auto clamped = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  int64_t first = start.isNone() ? 0 : clamped(start.toInt());
  int64_t last = end.isNone() ? size : std::max(clamped(end.toInt()), first);
  int64_t count = (last - first + step - 1) / step;
  return {first, std::min(first + count * step, size)};
}

}  // namespace

std::optional<SliceRange> slice_range(const OpInfo& info, const c10::IValue* arguments) {
  if (!info.slice) {
    return std::nullopt;
  }
  const SliceArguments& slice = *info.slice;
  const c10::IValue& sized = arguments[slice.sized];
  int64_t rank = rank_of(sized);
  int64_t dim = arguments[slice.dim].toInt();
  if (rank == 0 || !is_within(dim, -rank, rank - 1)) {
    return std::nullopt;
  }
  int64_t size = size_of(sized, dim < 0 ? dim + rank : dim);
  const c10::IValue& begin = arguments[slice.begin];
  if (slice.end > 0) {
    int64_t step = arguments[slice.step].toInt();
    return step > 0 ? std::optional(range_of(begin, arguments[slice.end], step, size))
                    : std::nullopt;
  }
  int64_t length = slice.length > 0 ? arguments[slice.length].toInt() : 1;
  int64_t first = begin.toInt() < 0 ? begin.toInt() + size : begin.toInt();
  if (length < 0 || !is_within(first, 0, size - length)) {
    return std::nullopt;
  }
  return SliceRange{first, first + length};
}

}  // namespace torch_xla
