// A call of an operator, written down by hand: what lowering tests are made of. Not thread-safe.
#pragma once

#include "lower/lower_state.h"
#include "lower/table.h"

#include <numeric>

namespace torch_xla {

class TestCall {
 public:
  explicit TestCall(const std::string& op) { signature_.op = op; }

  TestCall& tensor(DType dtype, Dims sizes) {
    Dims strides = row_major_strides(sizes);
    return window({dtype, {sizes}}, {dtype, sizes, strides, 0});
  }
  // A strided reading of `frame`.
  TestCall& window(TensorType frame, Window window) {
    OperandRef ref{static_cast<int32_t>(signature_.operands.size())};
    frames_.push_back(std::move(frame));
    signature_.operands.push_back(std::move(window));
    signature_.arguments.push_back(ref);
    return *this;
  }
  template <typename T>
  TestCall& number(T value) {
    return add_number(Number::of(value), {}, false);
  }
  // A number that has been seen to change: an input of the program.
  TestCall& changing_number(double value) { return add_number(Number::of(value), {}, true); }
  // A 0-d CPU tensor; `wrapped` if it was a Python number.
  template <typename T>
  TestCall& cpu_scalar(T value, DType dtype, bool wrapped = false) {
    NumberRef ref;
    ref.is_tensor = true;
    ref.wrapped = wrapped;
    ref.dtype = dtype;
    return add_number(Number::of(value), ref, false);
  }
  TestCall& argument(Attribute value) {
    signature_.arguments.push_back(std::move(value));
    return *this;
  }
  TestCall& output(DType dtype, Dims sizes) {
    OutputSpec spec;
    spec.dtype = dtype;
    spec.sizes = sizes;
    spec.strides = row_major_strides(sizes);
    spec.frame = {dtype, sizes};
    spec.frame_to_sizes.resize(sizes.size());
    std::iota(spec.frame_to_sizes.begin(), spec.frame_to_sizes.end(), 0);
    signature_.outputs.push_back(std::move(spec));
    return *this;
  }

  const Signature& signature() const { return signature_; }

  // Appends a function that takes the operands' frames, then the changing numbers.
  void lower(Builder& b, const std::string& function, HostCalls host_calls = HostCalls::IfFaster) {
    b.begin_function(function, false);
    LowerContext::State state;
    for (const TensorType& frame : frames_) {
      state.frames.push_back(b.parameter(frame));
    }
    bool pinned = false;
    for (size_t i = 0; i < numbers_.size(); ++i) {
      Val input = changing_[i] ? b.parameter({DType::Double, {}}) : Val();
      state.numbers.push_back({numbers_[i], input, &pinned});
    }
    state.results.resize(signature_.outputs.size());
    LowerContext context(b, signature_, state, host_calls);
    lower_table().at(signature_.op).function(context);
    b.end_function(state.results);
  }

 private:
  TestCall& add_number(Number number, NumberRef ref, bool changing) {
    ref.slot = static_cast<int32_t>(numbers_.size());
    numbers_.push_back(number);
    changing_.push_back(changing);
    signature_.number_kinds.push_back(number.kind);
    signature_.arguments.push_back(ref);
    return *this;
  }

  Signature signature_;
  std::vector<TensorType> frames_;
  std::vector<Number> numbers_;
  std::vector<bool> changing_;
};

}  // namespace torch_xla
