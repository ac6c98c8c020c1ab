#include "record/moving.h"

#include "record/op_info.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

namespace torch_xla {

namespace {

// ---- slices (select_backward, slice_scatter, ...) ----------------------------------------------

// In a dimension counted from 0.
struct SliceRange {
  int64_t begin = 0;
  int64_t end = 0;
};

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

// Nothing for what PyTorch will refuse.
std::optional<SliceRange> slice_range(const SliceArguments& slice, const c10::IValue* arguments) {
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

// Of a slice only the length is known before any value is.
bool slice_moves(const OpInfo& info, const c10::IValue* arguments, MovingNumbers& moving) {
  const SliceArguments& slice = info.slice;
  const std::optional<SliceRange> range = slice_range(slice, arguments);
  if (!range) {
    return false;
  }
  moving.fixed.push_back(range->end - range->begin);
  moving.numbers.push_back({slice.begin, Number::of(range->begin)});
  if (slice.end > 0) {
    moving.numbers.push_back({slice.end, Number::of(range->end)});
  }
  return true;
}

// ---- others -------------------------------------------------------------------------------------

// tril(self, diagonal)
bool diagonal_moves(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  if (!arguments[1].isInt()) {
    return false;
  }
  moving.numbers.push_back({1, Number::of(arguments[1].toInt())});
  return true;
}

// roll(self, shifts, dims)
bool shifts_move(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  const c10::ArrayRef<c10::IValue> shifts = arguments[1].toListRef();
  const size_t dims = arguments[2].toListRef().size();
  if (shifts.empty() || shifts.size() != std::max<size_t>(dims, 1)) {
    return false;
  }
  for (const c10::IValue& shift : shifts) {
    if (!shift.isInt()) {
      return false;
    }
    moving.numbers.push_back({1, Number::of(shift.toInt())});
  }
  return true;
}

// Whether a whole number of this dtype may be any of a range, which 32 random bits tell apart.
bool is_drawn_by_words(int64_t from, int64_t to, DType dtype) {
  constexpr int64_t kWord = std::numeric_limits<uint32_t>::max(), kFar = int64_t{1} << 62;
  constexpr int64_t kExact = int64_t{1} << 24;  // floats count as far
  const bool is_near = -kFar < from && from < to && to < kFar && to - from <= kWord;
  const bool fits =
      from >= std::numeric_limits<int32_t>::min() && to - 1 <= std::numeric_limits<int32_t>::max();
  const bool exact = -kExact <= from && to <= kExact;
  return is_near && (dtype == DType::Long || (dtype == DType::Int && fits) ||
                     (dtype == DType::Float && exact));
}

// random.from(self, from, to)
bool range_moves(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  if (!arguments[1].isInt() || !arguments[2].isInt()) {
    return false;
  }
  const int64_t from = arguments[1].toInt(), to = arguments[2].toInt();
  moving.numbers.push_back({1, Number::of(from)});
  moving.numbers.push_back({2, Number::of(to)});
  return is_drawn_by_words(from, to, arguments[0].toTensor().scalar_type());
}

// random.to(self, to)
bool end_moves(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  if (!arguments[1].isInt()) {
    return false;
  }
  const int64_t to = arguments[1].toInt();
  moving.numbers.push_back({1, Number::of(to)});
  return is_drawn_by_words(0, to, arguments[0].toTensor().scalar_type());
}

// arange.start(start, end), arange.start_step(start, end, step): their results' size stays.
bool sequence_moves(const c10::IValue* arguments, int64_t step, MovingNumbers& moving) {
  constexpr int64_t kFar = int64_t{1} << 52;
  if (!arguments[0].isInt() || !arguments[1].isInt() || step == 0) {
    return false;
  }
  const int64_t start = arguments[0].toInt(), end = arguments[1].toInt();
  auto is_near = [](int64_t value) { return -kFar < value && value < kFar; };
  if (!is_near(start) || !is_near(end) || !is_near(step) || (end - start) / step < 0) {
    return false;
  }
  moving.fixed.push_back((end - start + step - (step > 0 ? 1 : -1)) / step);
  moving.numbers.push_back({0, Number::of(start)});
  moving.numbers.push_back({1, Number::of(end)});
  return true;
}
bool range_of_ones_moves(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  return sequence_moves(arguments, 1, moving);
}
bool range_of_steps_moves(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  return arguments[2].isInt() && sequence_moves(arguments, arguments[2].toInt(), moving);
}

// pow(self, exponent): roots and small powers are other computations.
bool exponent_moves(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  if (!arguments[1].isDouble()) {
    return false;
  }
  const double exponent = arguments[1].toDouble();
  const bool is_special = std::abs(exponent) <= 3 && 2 * exponent == std::floor(2 * exponent);
  moving.numbers.push_back({1, Number::of(exponent)});
  return !is_special && std::isfinite(exponent);
}

// linalg_vector_norm(self, ord, …): extremes, a count, a plain sum and one of squares are other
// computations.
bool order_moves(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  const c10::IValue& order = arguments[1];
  if (!order.isInt() && !order.isDouble()) {
    return false;
  }
  // A number of one kind, as others of the operator's calls will be.
  const double value = order.isInt() ? static_cast<double>(order.toInt()) : order.toDouble();
  moving.numbers.push_back({1, Number::of(value)});
  return std::isfinite(value) && value > 0 && value != 1 && value != 2;
}

// kthvalue(self, k, dim, keepdim)
bool rank_moves(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  const int64_t rank = rank_of(arguments[0]);
  const int64_t most = std::max<int64_t>(rank, 1);
  if (!arguments[1].isInt() || !is_within(arguments[2].toInt(), -most, most - 1)) {
    return false;
  }
  const int64_t dim = arguments[2].toInt();
  const int64_t size = rank == 0 ? 1 : size_of(arguments[0], dim < 0 ? dim + rank : dim);
  moving.numbers.push_back({1, Number::of(arguments[1].toInt())});
  return is_within(arguments[1].toInt(), 1, size);
}

// round(self, decimals): as far as powers of ten are exact.
bool decimals_move(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  constexpr int64_t kExact = 22;
  if (!arguments[1].isInt()) {
    return false;
  }
  moving.numbers.push_back({1, Number::of(arguments[1].toInt())});
  return is_within(arguments[1].toInt(), -kExact, kExact);
}

// huber_loss(self, target, reduction, delta): 0 is another loss, or a mistake.
bool threshold_moves(const OpInfo&, const c10::IValue* arguments, MovingNumbers& moving) {
  if (!arguments[3].isDouble()) {
    return false;
  }
  moving.numbers.push_back({3, Number::of(arguments[3].toDouble())});
  return arguments[3].toDouble() > 0;
}

}  // namespace

SliceArguments slice_arguments(const c10::FunctionSchema& schema) {
  SliceArguments slice;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    if (name == "input_sizes") {
      slice.sized = i;
    } else if (name == "dim") {
      slice.dim = i;
    } else if (name == "index" || name == "start") {
      slice.begin = i;
    } else if (name == "end") {
      slice.end = i;
    } else if (name == "length") {
      slice.length = i;
    } else if (name == "step") {
      slice.step = i;
    }
  }
  return slice;
}

MovingRule find_moving_rule(const std::string& functional_name, bool is_slice) {
  static const std::unordered_map<std::string, MovingRule> rules = {
      {"aten::tril", diagonal_moves},
      {"aten::triu", diagonal_moves},
      {"aten::roll", shifts_move},
      {"aten::random.from", range_moves},
      {"aten::random.to", end_moves},
      {"aten::arange.start", range_of_ones_moves},
      {"aten::arange.start_step", range_of_steps_moves},
      {"aten::pow.Tensor_Scalar", exponent_moves},
      {"aten::huber_loss", threshold_moves},
      {"aten::smooth_l1_loss", threshold_moves},
      {"aten::linalg_vector_norm", order_moves},
      {"aten::norm.Scalar", order_moves},
      {"aten::norm.ScalarOpt_dim", order_moves},
      {"aten::norm.ScalarOpt_dim_dtype", order_moves},
      {"aten::norm.ScalarOpt_dtype", order_moves},
      {"aten::kthvalue", rank_moves},
      {"aten::round.decimals", decimals_move},
  };
  if (is_slice) {
    return slice_moves;
  }
  const auto rule = rules.find(functional_name);
  return rule == rules.end() ? nullptr : rule->second;
}

}  // namespace torch_xla
