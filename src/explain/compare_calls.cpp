#include "explain/compare_calls.h"

#include "explain/words.h"
#include "ir/window.h"

namespace torch_xla::explain {

namespace {

std::string changed(const std::string& what, const Operation& now, const std::string& from,
                    const std::string& to) {
  return what + " of " + operator_at(now) + " " + from + ", now " + to;
}

// Only the first dimension is smaller: what the end of a data set does to a batch.
bool is_last_batch(const Dims& before, const Dims& now) {
  return before.size() == now.size() && !now.empty() && now[0] < before[0] &&
         std::equal(before.begin() + 1, before.end(), now.begin() + 1);
}

Explanation changed_shape(const std::string& what, const Operation& now, const Dims& from,
                          const Dims& to) {
  Explanation e;
  e.cause = "shape";
  e.reason = changed(what, now, "had shape " + shape_text(from), shape_text(to));
  e.advice =
      "each shape is a program of its own: pad to one shape, or to a few (powers of two), and "
      "mask the rest";
  if (is_last_batch(from, to)) {
    e.reason += " (last batch?)";
    e.advice = "use drop_last=True in the DataLoader, or pad the last batch and mask the rest";
  }
  return e;
}

std::string kind_text(Number::Kind kind) {
  switch (kind) {
    case Number::Kind::Bool:
      return "a bool";
    case Number::Kind::Int:
    case Number::Kind::UInt:
      return "an int";
    case Number::Kind::Double:
      return "a float";
    case Number::Kind::Complex:
      break;
  }
  return "a complex number";
}

std::optional<Explanation> changed_kind(const Operation& before, const Operation& now) {
  const auto& from = before.signature->number_kinds;
  const auto& to = now.signature->number_kinds;
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    if (from[i] != to[i]) {
      return Explanation{"number type",
                         changed(number_argument(*now.signature, i), now,
                                 "was " + kind_text(from[i]), kind_text(to[i])),
                         "give it one type in all calls: 2.0 instead of 2"};
    }
  }
  return std::nullopt;
}

std::optional<Explanation> changed_attribute(const Operation& before, const Operation& now) {
  const auto& from = before.signature->arguments;
  const auto& to = now.signature->arguments;
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    const std::string was = attribute_text(from[i]);
    const std::string is = attribute_text(to[i]);
    if (was != is) {
      return Explanation{
          "argument", changed("argument " + std::to_string(i + 1), now, "was " + was, is),
          "this argument shapes the program: keep it the same from step to step, or put the value "
          "that changes into a tensor on the device"};
    }
  }
  return std::nullopt;
}

std::optional<Explanation> changed_output(const Operation& before, const Operation& now) {
  const auto& from = before.signature->outputs;
  const auto& to = now.signature->outputs;
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    const std::string what = "result " + std::to_string(i + 1);
    if (from[i].sizes != to[i].sizes) {
      return changed_shape(what, now, from[i].sizes, to[i].sizes);
    }
    if (from[i].dtype != to[i].dtype) {
      return Explanation{
          "dtype",
          changed(what, now, "had dtype " + dtype_text(from[i].dtype), dtype_text(to[i].dtype)),
          ""};
    }
  }
  return std::nullopt;
}

std::string place_text(const Window& window) {
  switch (window.lies) {
    case Window::Lies::InRows:
      return "within rows";
    case Window::Lies::AcrossRows:
      return "across the ends of rows";
    case Window::Lies::InFrame:
      break;
  }
  return "along the dimensions";
}

std::string extent_text(const Window& window) {
  return std::to_string(window.extent > 0 ? window.extent : span_of(window.sizes, window.strides));
}

}  // namespace

Explanation changed_number(const Operation& now, size_t slot, const Number& from, const Number& to,
                           bool promoted) {
  const std::vector<Window>& windows = now.signature->operands;
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].start == static_cast<int32_t>(slot)) {
      return {"slice",
              changed(operand_argument(*now.signature, i), now,
                      "began at element " + number_text(from) + " of its storage",
                      "at " + number_text(to)) +
                  " (an index or a slice that moves?): it is an input from now on, other places "
                  "compile nothing",
              "expected once for a slice that moves"};
    }
  }
  const std::string what = changed(number_argument(*now.signature, slot), now,
                                   "was " + number_text(from), number_text(to));
  if (promoted) {
    return {"number", what + ": it is an input from now on, other values compile nothing",
            "expected once for a number that changes"};
  }
  return {"literal", what + ", in a place that must be a literal",
          "keep it the same, or put the value into a tensor on the device"};
}

std::optional<Explanation> changed_window(const Operation& before, const Operation& now,
                                          size_t index) {
  const Window& from = before.signature->operands[index];
  const Window& to = now.signature->operands[index];
  const std::string what = operand_argument(*now.signature, index);
  if (from.dtype != to.dtype) {
    return Explanation{
        "dtype", changed(what, now, "had dtype " + dtype_text(from.dtype), dtype_text(to.dtype)),
        "convert it to one dtype before the step; a float64 often comes from NumPy"};
  }
  if (from.sizes != to.sizes) {
    return changed_shape(what, now, from.sizes, to.sizes);
  }
  if (from.extent != to.extent || from.offset != to.offset) {
    return Explanation{
        "storage",
        changed(what, now, "was part of a storage of " + extent_text(from) + " elements",
                "of " + extent_text(to)),
        "clone() the slice, so that it has a storage of its own"};
  }
  if (from.strides != to.strides) {
    return Explanation{
        "layout",
        changed(what, now, "had strides " + shape_text(from.strides), shape_text(to.strides)) +
            " (a transpose or another memory format?)",
        "make the tensor contiguous() before the step"};
  }
  if (from.lies != to.lies) {
    return Explanation{
        "slice", changed(what, now, "lay " + place_text(from) + " of its storage", place_text(to)),
        "each of the two is a program of its own, wherever the slice begins"};
  }
  return std::nullopt;
}

std::optional<Explanation> changed_signature(const Operation& before, const Operation& now) {
  const size_t operands =
      std::min(before.signature->operands.size(), now.signature->operands.size());
  for (size_t i = 0; i < operands; ++i) {
    if (auto window = changed_window(before, now, i)) {
      return window;
    }
  }
  if (auto kind = changed_kind(before, now)) {
    return kind;
  }
  if (auto attribute = changed_attribute(before, now)) {
    return attribute;
  }
  return changed_output(before, now);
}

}  // namespace torch_xla::explain
