#include "lower/window.h"

#include "base/error.h"
#include "ir/window.h"
#include "pjrt/doubles.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace torch_xla {

using stablehlo::Builder;
using stablehlo::Val;

namespace {

Val flatten(Builder& b, Val x) { return x.rank() == 1 ? x : b.reshape(x, {x.numel()}); }

// A flat array of exactly `count` elements: cut, or padded with zeros.
Val fit(Builder& b, Val flat, int64_t count) {
  int64_t have = flat.numel();
  if (count < have) {
    return b.slice(flat, {0}, {count}, {1});
  }
  if (count > have) {
    return b.pad(flat, b.scalar_like(flat, 0), {0}, {count - have}, {0});
  }
  return flat;
}

int64_t width(DType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

Val complex_to_parts(Builder& b, Val flat) {
  Val real = b.reshape(b.real(flat), {flat.numel(), 1});
  Val imag = b.reshape(b.imag(flat), {flat.numel(), 1});
  return b.reshape(b.concatenate({real, imag}, 1), {2 * flat.numel()});
}

Val parts_to_complex(Builder& b, Val flat) {
  int64_t n = flat.numel() / 2;
  Val parts = b.reshape(fit(b, flat, 2 * n), {n, 2});
  Val real = b.reshape(b.slice_dim(parts, 1, 0, 1), {n});
  Val imag = b.reshape(b.slice_dim(parts, 1, 1, 2), {n});
  return b.complex(real, imag);
}

// Flat array of the same bytes with another element type; a trailing partial element is dropped.
Val bitcast_flat(Builder& b, Val flat, DType dtype) {
  DType from = flat.dtype();
  if (from == dtype) {
    return flat;
  }
  if (c10::isComplexType(from)) {
    return bitcast_flat(b, complex_to_parts(b, flat), dtype);
  }
  if (c10::isComplexType(dtype)) {
    return parts_to_complex(b, bitcast_flat(b, flat, c10::toRealValueType(dtype)));
  }
  if (from == DType::Bool) {  // i1 has no bytes of its own
    return bitcast_flat(b, b.convert(flat, DType::Byte), dtype);
  }
  if (dtype == DType::Bool) {
    return b.convert(bitcast_flat(b, flat, DType::Byte), DType::Bool);
  }
  for (DType each : {from, dtype}) {
    if (pjrt::device_dtype(each) != each) {
      throw Error(std::string("the bytes of ") + c10::toString(from) + " are seen as " +
                  c10::toString(dtype) + ", and this platform keeps " + c10::toString(each) +
                  " as " + c10::toString(pjrt::device_dtype(each)) +
                  ": convert to that first, or view a copy on the CPU");
    }
  }
  int64_t n = flat.numel();
  int64_t old_width = width(from);
  int64_t new_width = width(dtype);
  if (new_width < old_width) {
    int64_t ratio = old_width / new_width;
    return flatten(b, b.bitcast_convert(flat, {dtype, {n, ratio}}));
  }
  int64_t ratio = new_width / old_width;
  int64_t count = n / ratio;
  Val whole = fit(b, flat, count * ratio);
  if (ratio > 1) {
    whole = b.reshape(whole, {count, ratio});
  }
  return b.bitcast_convert(whole, {dtype, {count}});
}

bool is_row_major(const Window& window) {
  int64_t stride = 1;
  for (size_t i = window.sizes.size(); i-- > 0;) {
    if (window.sizes[i] != 1) {
      if (window.strides[i] != stride) {
        return false;
      }
      stride *= window.sizes[i];
    }
  }
  return true;
}

// The window's dimensions that move in memory, outermost first, and the digits they range over.
struct Plan {
  Dims kept;         // window dimensions with size > 1 and stride > 0, by descending stride
  Dims kept_sizes;   // their sizes
  Dims digits;       // shape given to the flat frame
  Dims start, step;  // per digit; beyond kept_sizes a trailing digit is indexed by `start`
  int64_t frame_elements = 0;  // product of digits: the flat frame is cut or padded to it
  bool expands = false;        // some dimension has size > 1 and stride 0

  bool has_trailing() const { return digits.size() > kept.size(); }
};

Plan moving_dimensions(const Window& window) {
  Plan plan;
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    if (window.sizes[i] <= 1) {
      continue;
    }
    if (window.strides[i] == 0) {
      plan.expands = true;
    } else {
      plan.kept.push_back(static_cast<int64_t>(i));
    }
  }
  std::stable_sort(plan.kept.begin(), plan.kept.end(),
                   [&](int64_t x, int64_t y) { return window.strides[x] > window.strides[y]; });
  for (int64_t dim : plan.kept) {
    plan.kept_sizes.push_back(window.sizes[dim]);
  }
  return plan;
}

std::optional<Plan> make_plan(const Window& window, int64_t frame_numel) {
  Plan plan = moving_dimensions(window);
  int64_t rest = window.offset;
  int64_t unit = 0;
  for (size_t i = 0; i < plan.kept.size(); ++i) {
    int64_t stride = window.strides[plan.kept[i]];
    int64_t size = plan.kept_sizes[i];
    int64_t finer = i == 0 ? stride : std::gcd(unit, stride);
    int64_t start = rest / finer;
    int64_t step = stride / finer;
    int64_t span = start + (size - 1) * step + 1;
    int64_t digit = i == 0 ? std::max(span, (frame_numel + finer - 1) / finer) : unit / finer;
    if (span > digit) {
      return std::nullopt;  // rows of the window overlap, or wrap around
    }
    plan.digits.push_back(digit);
    plan.start.push_back(start);
    plan.step.push_back(step);
    rest %= finer;
    unit = finer;
  }
  if (plan.kept.empty()) {
    unit = std::max(frame_numel, rest + 1);
  }
  if (unit > 1 || plan.kept.empty()) {
    plan.digits.push_back(unit);
    plan.start.push_back(rest);
    plan.step.push_back(1);
  }
  plan.frame_elements = product(plan.digits);
  return plan;
}

Dims slice_limits(const Plan& plan) {
  Dims limits;
  for (size_t i = 0; i < plan.digits.size(); ++i) {
    int64_t size = i < plan.kept_sizes.size() ? plan.kept_sizes[i] : 1;
    limits.push_back(plan.start[i] + (size - 1) * plan.step[i] + 1);
  }
  return limits;
}

// From kept dimensions in memory order to the window's sizes.
Val arrange(Builder& b, Val kept, const Plan& plan, const Window& window) {
  Dims order(plan.kept.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t x, int64_t y) { return plan.kept[x] < plan.kept[y]; });
  if (!std::is_sorted(order.begin(), order.end())) {
    kept = b.transpose(kept, order);
  }
  if (!plan.expands) {
    return kept.dims() == window.sizes ? kept : b.reshape(kept, window.sizes);
  }
  Dims map(plan.kept.begin(), plan.kept.end());
  std::sort(map.begin(), map.end());
  return b.broadcast_in_dim(kept, window.sizes, map);
}

// The inverse: element 0 of expanded dimensions, dimensions in memory order.
Val gather_kept(Builder& b, Val update, const Plan& plan, const Window& window) {
  Dims limits(update.dims());
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    if (window.strides[i] == 0) {
      limits[i] = std::min<int64_t>(limits[i], 1);
    }
  }
  if (limits != update.dims()) {
    Dims zeros(limits.size(), 0);
    Dims ones(limits.size(), 1);
    update = b.slice(update, zeros, limits, ones);
  }
  Dims ascending(plan.kept.begin(), plan.kept.end());
  std::sort(ascending.begin(), ascending.end());
  Dims sizes;
  for (int64_t dim : ascending) {
    sizes.push_back(window.sizes[dim]);
  }
  if (update.dims() != sizes) {
    update = b.reshape(update, sizes);
  }
  Dims permutation;
  for (int64_t dim : plan.kept) {
    permutation.push_back(std::find(ascending.begin(), ascending.end(), dim) - ascending.begin());
  }
  return std::is_sorted(permutation.begin(), permutation.end()) ? update
                                                                : b.transpose(update, permutation);
}

// Flat positions of the window's elements, [numel, 1].
Val window_indices(Builder& b, const Window& window) {
  TensorType type{DType::Long, window.sizes};
  Val index = b.full(static_cast<double>(window.offset), type);
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    if (window.sizes[i] > 1 && window.strides[i] != 0) {
      Val along = b.iota(type, static_cast<int64_t>(i));
      index =
          b.add(index, b.mul(along, b.scalar_like(along, static_cast<double>(window.strides[i]))));
    }
  }
  return b.reshape(index, {window.numel(), 1});
}

Val read_by_index(Builder& b, Val flat, const Window& window) {
  stablehlo::GatherDims dims;
  dims.collapsed_slice_dims = {0};
  dims.start_index_map = {0};
  dims.index_vector_dim = 1;
  dims.slice_sizes = {1};
  return b.reshape(b.gather(flat, window_indices(b, window), dims), window.sizes);
}

Val write_by_index(Builder& b, Val flat, const Window& window, Val update) {
  stablehlo::ScatterDims dims;
  dims.inserted_window_dims = {0};
  dims.scatter_dims_to_operand_dims = {0};
  dims.index_vector_dim = 1;
  return b.scatter(flat, window_indices(b, window), b.reshape(update, {window.numel()}), dims,
                   [](Builder&, const stablehlo::Vals& args) { return stablehlo::Vals{args[1]}; });
}

Val write_range(Builder& b, Val digits, const Plan& plan, Val update) {
  bool dense = std::all_of(plan.step.begin(), plan.step.end(), [](int64_t s) { return s == 1; });
  if (dense) {
    stablehlo::Vals starts;
    for (int64_t start : plan.start) {
      starts.push_back(b.constant(Number::of(start), DType::Long));
    }
    return b.dynamic_update_slice(digits, update, starts);
  }
  Dims high;
  Dims interior;
  Dims limits = slice_limits(plan);
  for (size_t i = 0; i < plan.digits.size(); ++i) {
    high.push_back(plan.digits[i] - limits[i]);
    interior.push_back(plan.step[i] - 1);
  }
  Val spread = b.pad(update, b.scalar_like(update, 0), plan.start, high, interior);
  Val mask = b.full(1, {DType::Bool, update.dims()});
  mask = b.pad(mask, b.scalar_like(mask, 0), plan.start, high, interior);
  return b.select(mask, spread, digits);
}

bool covers(const Plan& plan, const Window& window, int64_t frame_numel) {
  if (window.offset != 0 || plan.has_trailing() || plan.frame_elements != frame_numel) {
    return false;
  }
  return plan.digits == plan.kept_sizes;
}

// The window at its known offset in `frame`, of its dtype; null if no digits express that.
Val read_digits(Builder& b, Val frame, const Window& window) {
  if (window.offset == 0 && window.numel() == frame.numel() && is_row_major(window)) {
    return frame.dims() == window.sizes ? frame : b.reshape(frame, window.sizes);
  }
  std::optional<Plan> plan = make_plan(window, frame.numel());
  if (!plan) {
    return {};
  }
  Val digits = fit(b, flatten(b, frame), plan->frame_elements);
  if (plan->digits.size() != 1) {
    digits = frame.dims() == plan->digits ? frame : b.reshape(digits, plan->digits);
  }
  Dims limits = slice_limits(*plan);
  bool whole = limits == plan->digits && plan->start == Dims(plan->start.size(), 0) &&
               plan->step == Dims(plan->step.size(), 1);
  if (!whole) {
    digits = b.slice(digits, plan->start, limits, plan->step);
  }
  if (plan->has_trailing()) {
    digits = b.reshape(digits, plan->kept_sizes);
  }
  return arrange(b, digits, *plan, window);
}

// `flat` with the window at its known offset replaced; null if no digits express that.
Val write_digits(Builder& b, Val flat, const Window& window, Val update) {
  std::optional<Plan> plan = make_plan(window, flat.numel());
  if (!plan) {
    return {};
  }
  Val kept = gather_kept(b, update, *plan, window);
  if (covers(*plan, window, flat.numel())) {
    return kept;
  }
  Val digits = b.reshape(fit(b, flat, plan->frame_elements), plan->digits);
  if (plan->has_trailing()) {
    Dims sizes(plan->kept_sizes);
    sizes.push_back(1);
    kept = b.reshape(kept, sizes);
  }
  return write_range(b, digits, *plan, kept);
}

// A box of digits that holds a window, and the window in it.
struct DigitBox {
  Dims digits;  // shape given to the frame
  stablehlo::Vals starts;
  Dims sizes;
  Window inside;

  int64_t numel() const { return product(sizes); }
};

Window begun_at_zero(const Window& window) { return {window.dtype, window.sizes, window.strides}; }

// Where the window begins in a digit.
Val start_in(Builder& b, const Digit& digit, bool outermost, const Place& place) {
  auto literal = [&](int64_t value) { return b.constant(Number::of(value), DType::Long); };
  if (digit.span == digit.size) {
    return literal(0);
  }
  if (!place.start) {
    return literal(place.window.offset / digit.unit % digit.size);
  }
  Val start = digit.unit == 1 ? place.start : b.div(place.start, literal(digit.unit));
  return outermost ? start : b.binary("remainder", start, literal(digit.size));
}

DigitBox make_box(Builder& b, const Digits& digits, const Place& place) {
  DigitBox box;
  for (size_t d = 0; d < digits.size(); ++d) {
    box.digits.push_back(digits[d].size);
    box.starts.push_back(start_in(b, digits[d], d == 0, place));
    box.sizes.push_back(digits[d].span);
  }
  const Window& window = place.window;
  box.inside = begun_at_zero(window);
  Dims strides = row_major_strides(box.sizes);
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    if (window.sizes[i] > 1 && window.strides[i] != 0) {
      size_t d = 0;  // a dimension may go across the digits of its run
      while (window.strides[i] % digits[d].unit != 0) {
        ++d;
      }
      box.inside.strides[i] = window.strides[i] / digits[d].unit * strides[d];
    }
  }
  return box;
}

// All elements from the window's first to its last: wherever it begins.
Digits digits_of_span(const Window& window, int64_t capacity) {
  return {{capacity, 1, span_of(window.sizes, window.strides)}};
}

// A range of each digit: wherever the window begins without crossing the ends of rows.
Digits digits_of_rows(const Window& window, int64_t capacity) {
  Digits digits;
  for (const Run& run : runs_of(window.sizes, window.strides)) {
    int64_t row = digits.empty() ? 0 : digits.back().unit;
    int64_t unit = digits.empty() ? run.stride : std::gcd(row, run.stride);
    int64_t size = digits.empty() ? (capacity + unit - 1) / unit : row / unit;
    digits.push_back({size, unit, (run.count - 1) * (run.stride / unit) + 1});
  }
  if (digits.empty()) {
    digits.push_back({capacity, 1, 1});
  } else if (digits.back().unit > 1) {
    digits.push_back({digits.back().unit, 1, 1});
  }
  return digits;
}

DigitBox box_of(Builder& b, const Place& place, int64_t frame_numel) {
  const Window& window = place.window;
  int64_t capacity = std::max(frame_numel, window.extent);
  bool by_rows = place.start && window.lies != Window::Lies::AcrossRows;
  return make_box(b, by_rows ? digits_of_rows(window, capacity) : digits_of_span(window, capacity),
                  place);
}

// The box of a frame's own dimensions, if the window is one: written there, a value keeps its place
// in memory, where a change of shape would make XLA copy it.
std::optional<DigitBox> box_in_frame(Builder& b, const Place& place, const TensorType& frame) {
  const Window& window = place.window;
  if (frame.dtype != window.dtype || (place.start && window.lies != Window::Lies::InFrame)) {
    return std::nullopt;
  }
  Runs runs = runs_of(window.sizes, window.strides);
  std::optional<Digits> digits = digits_in_frame(runs, window.offset, frame.dims);
  bool whole = digits && std::all_of(digits->begin(), digits->end(),
                                     [](const Digit& digit) { return digit.span == digit.size; });
  return digits && !whole ? std::optional(make_box(b, *digits, place)) : std::nullopt;
}

Val digits_of(Builder& b, Val x, const DigitBox& box) {
  if (x.dims() == box.digits) {
    return x;
  }
  Val digits = fit(b, flatten(b, x), product(box.digits));
  return box.digits.size() == 1 ? digits : b.reshape(digits, box.digits);
}

Val read_box(Builder& b, Val flat, const Place& place) {
  DigitBox box = box_of(b, place, flat.numel());
  Val held = b.dynamic_slice(digits_of(b, flat, box), box.starts, box.sizes);
  Val result = read_digits(b, held, box.inside);
  return result ? result : read_by_index(b, flatten(b, held), box.inside);
}

// x, of the box's digits, with the window in the box replaced.
Val write_box(Builder& b, Val x, const DigitBox& box, Val update) {
  Val held;
  std::optional<Plan> plan = make_plan(box.inside, box.numel());
  if (plan && covers(*plan, box.inside, box.numel())) {
    held = gather_kept(b, update, *plan, box.inside);
  } else {
    Val before = flatten(b, b.dynamic_slice(x, box.starts, box.sizes));
    held = plan ? write_digits(b, before, box.inside, update)
                : write_by_index(b, before, box.inside, update);
    held = fit(b, flatten(b, held), box.numel());
  }
  held = held.dims() == box.sizes ? held : b.reshape(held, box.sizes);
  return b.dynamic_update_slice(x, held, box.starts);
}

// Rows of the window lie in each other: no digits express that, wherever it begins.
bool overlaps(const Window& window) {
  return !make_plan(begun_at_zero(window), span_of(window.sizes, window.strides));
}

}  // namespace

Val reinterpret_frame(Builder& b, Val frame, const TensorType& result) {
  if (frame.type() == result) {
    return frame;
  }
  Val flat = fit(b, bitcast_flat(b, flatten(b, frame), result.dtype), result.numel());
  return flat.dims() == result.dims ? flat : b.reshape(flat, result.dims);
}

Val read_window(Builder& b, Val frame, const Place& place) {
  const Window& window = place.window;
  if (window.numel() == 0) {
    return b.full(0, {window.dtype, window.sizes});
  }
  if (frame.dtype() != window.dtype) {
    frame = bitcast_flat(b, flatten(b, frame), window.dtype);
  }
  Val result = place.start ? Val() : read_digits(b, frame, window);
  if (result) {
    return result;
  }
  Val flat = flatten(b, frame);
  return place.start || !overlaps(window) ? read_box(b, flat, place)
                                          : read_by_index(b, flat, window);
}

Val write_window(Builder& b, Val frame, const Place& place, Val update, const TensorType& result) {
  const Window& window = place.window;
  frame = reinterpret_frame(b, frame, result);
  if (window.numel() == 0) {
    return frame;
  }
  update = b.convert(update, window.dtype);
  if (std::optional<DigitBox> box = box_in_frame(b, place, result)) {
    return write_box(b, frame, *box, update);
  }
  Val flat = bitcast_flat(b, flatten(b, frame), window.dtype);
  Val written = place.start ? Val() : write_digits(b, flat, window, update);
  if (!written && (place.start || !overlaps(window))) {
    DigitBox box = box_of(b, place, flat.numel());
    written = write_box(b, digits_of(b, flat, box), box, update);
  } else if (!written) {
    written = write_by_index(b, flat, window, update);
  }
  Val bytes = bitcast_flat(b, fit(b, flatten(b, written), flat.numel()), result.dtype);
  if (bytes.numel() < result.numel()) {  // the memory ends in a part of an element of the window's
    Val rest = b.slice(flatten(b, frame), {bytes.numel()}, {result.numel()}, {1});
    bytes = b.concatenate({bytes, rest}, 0);
  }
  return reinterpret_frame(b, bytes, result);
}

}  // namespace torch_xla
