#include "lower/control.h"

#include "base/error.h"
#include "ir/graph.h"

namespace torch_xla {

namespace {

// The same elements, in the shape that is wanted: a computation's results may lie in frames of
// other dimensions than what they replace.
Val with_type(Builder& b, Val value, const TensorType& type) {
  return value.type() == type
             ? value
             : read_window(b, value, {{type.dtype, type.dims, row_major_strides(type.dims)}, {}});
}

TensorType slice_type(const TensorType& stack) {
  return {stack.dtype, Dims(stack.dims.begin() + 1, stack.dims.end())};
}

// Where slice `index` of a stack begins.
Vals starts_at(Builder& b, Val index, int64_t rank) {
  Vals starts(static_cast<size_t>(rank), b.constant(Number::of(int64_t{0}), index.dtype()));
  starts[0] = index;
  return starts;
}

Val read_slice(Builder& b, Val stack, Val index) {
  Dims sizes = stack.dims();
  sizes[0] = 1;
  return b.reshape(b.dynamic_slice(stack, starts_at(b, index, stack.rank()), sizes),
                   slice_type(stack.type()).dims);
}

Val write_slice(Builder& b, Val stack, Val index, Val slice) {
  Dims sizes = stack.dims();
  sizes[0] = 1;
  Val update = b.reshape(with_type(b, slice, slice_type(stack.type())), sizes);
  return b.dynamic_update_slice(stack, update, starts_at(b, index, stack.rank()));
}

class ControlLowering {
 public:
  ControlLowering(Builder& b, const Signature& signature, const CallComputation& call)
      : b_(b),
        signature_(signature),
        call_(call),
        computation_(*signature.computation),
        control_(signature.computation->control) {}

  Vals if_else(const Vals& operands) {
    const Vals inputs(operands.begin() + 1, operands.end());
    std::vector<TensorType> types;
    for (const OutputSpec& output : signature_.outputs) {
      types.push_back(output.frame);
    }
    auto branch = [&](const Computation& computation) {
      return [&](Builder& b, const Vals&) {
        Vals results = call_(computation, inputs);
        for (size_t i = 0; i < results.size(); ++i) {
          results[i] = with_type(b, results[i], types[i]);
        }
        return results;
      };
    };
    return b_.if_else(operands[0], types, branch(computation_), branch(*control_.otherwise));
  }

  Vals while_loop(const Vals& operands) {
    Vals results = b_.while_loop(
        operands, [](Builder&, const Vals& values) { return Vals{values[0]}; },
        [&](Builder& b, const Vals& values) {
          Vals next = call_(computation_, values);
          return replaced(b, values, 0, next);
        });
    results.resize(control_.carried);
    return results;
  }

  // The loop's values: a counter, the operands, the stacks that are filled.
  Vals scan(const Vals& operands) {
    Vals init{count(0)};
    init.insert(init.end(), operands.begin(), operands.end());
    for (size_t i = control_.carried; i < signature_.outputs.size(); ++i) {
      init.push_back(b_.full(0, signature_.outputs[i].frame));
    }
    Vals end = b_.while_loop(
        init,
        [&](Builder& b, const Vals& values) {
          return Vals{b.compare("LT", values[0], count(control_.length))};
        },
        [&](Builder& b, const Vals& values) { return iterate(b, values, operands.size()); });
    Vals results(end.begin() + 1, end.begin() + 1 + static_cast<std::ptrdiff_t>(control_.carried));
    results.insert(results.end(), end.begin() + 1 + static_cast<std::ptrdiff_t>(operands.size()),
                   end.end());
    return results;
  }

 private:
  Val count(int64_t value) { return b_.constant(Number::of(value), DType::Long); }

  // `values` with the carried ones, which begin at `first`, replaced.
  Vals replaced(Builder& b, Vals values, size_t first, const Vals& next) const {
    for (size_t i = 0; i < control_.carried; ++i) {
      values[first + i] = with_type(b, next[i], values[first + i].type());
    }
    return values;
  }

  Vals iterate(Builder& b, const Vals& values, size_t operands) {
    Val index = control_.reverse ? b.sub(count(control_.length - 1), values[0]) : values[0];
    Vals inputs;
    for (size_t i = 0; i < operands; ++i) {
      const bool is_slice = i >= control_.carried && i < control_.carried + control_.sliced;
      inputs.push_back(is_slice ? read_slice(b, values[1 + i], index) : values[1 + i]);
    }
    Vals next = call_(computation_, inputs);
    Vals result = replaced(b, values, 1, next);
    result[0] = b.add(values[0], count(1));
    for (size_t i = control_.carried; i < next.size(); ++i) {
      Val& stack = result[1 + operands + i - control_.carried];
      stack = write_slice(b, stack, index, next[i]);
    }
    return result;
  }

  Builder& b_;
  const Signature& signature_;
  const CallComputation& call_;
  const Computation& computation_;
  const Control& control_;
};

}  // namespace

Vals lower_control(Builder& b, const Signature& signature, const Vals& operands,
                   const CallComputation& call) {
  ControlLowering lowering(b, signature, call);
  switch (signature.computation->control.kind) {
    case Control::Kind::Call:
      return call(*signature.computation, operands);
    case Control::Kind::If:
      return lowering.if_else(operands);
    case Control::Kind::While:
      return lowering.while_loop(operands);
    case Control::Kind::Scan:
      return lowering.scan(operands);
  }
  throw Error("an unknown kind of control flow");
}

}  // namespace torch_xla
