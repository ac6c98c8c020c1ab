// Functions that are traced once and then called for almost nothing, for libtorch programs:
//
//   auto layer = torch_xla::assume_pure([](torch::Tensor x, torch::Tensor w) {
//     return torch::relu(x.matmul(w));
//   });
//   torch::Tensor y = layer(x, w);   // traced here, and once for each further kind of call
//
// A kind of call is the tensors' shapes, dtypes and requires_grad, the values of arithmetic
// arguments, and PyTorch's switches. Gradients, random numbers and changes in place behave as in
// the plain function; reading a value while tracing throws. A training step may be one, if what
// its optimizer counts is in tensors (SGD):
//
//   auto step = torch_xla::assume_pure([&](torch::Tensor x, torch::Tensor y) {
//     torch_xla::watch_gradients(model->parameters());
//     optimizer.zero_grad();
//     ...
//
// See docs/assume_pure.md. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace torch_xla {

struct PureInfo {
  int64_t hits = 0, misses = 0, traces = 0;
};

namespace detail {

using Tensors = std::vector<at::Tensor>;
class PureState;

std::shared_ptr<PureState> make_pure(const std::string& name);
Tensors call_pure(PureState& state, uint64_t static_key, const Tensors& arguments,
                  const std::function<Tensors(const Tensors&)>& body);
PureInfo pure_info(const PureState& state);

template <typename T>
void add_argument(const T& argument, Tensors& tensors, uint64_t& key) {
  if constexpr (std::is_convertible_v<T, at::Tensor>) {
    tensors.push_back(argument);
  } else {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>,
                  "arguments of a pure function are tensors, numbers or enumerators");
    uint64_t bits = 0;
    std::memcpy(&bits, &argument, sizeof(argument));
    key = (key ^ bits) * 0x9E3779B97F4A7C15ull + sizeof(argument);
  }
}

template <typename T>
T take_argument(const T& argument, const Tensors& tensors, size_t& next) {
  if constexpr (std::is_convertible_v<T, at::Tensor>) {
    return tensors[next++];
  } else {
    return argument;
  }
}

template <typename R>
Tensors pack(R result) {
  if constexpr (std::is_convertible_v<R, at::Tensor>) {
    return {result};
  } else if constexpr (std::is_convertible_v<R, Tensors>) {
    return result;
  } else {
    return std::apply([](auto&... parts) { return Tensors{parts...}; }, result);
  }
}

template <typename R, size_t... I>
R unpack_tuple(Tensors& results, std::index_sequence<I...> /*indices*/) {
  return R(results[I]...);
}

template <typename R>
R unpack(Tensors results) {
  if constexpr (std::is_convertible_v<R, at::Tensor>) {
    return results[0];
  } else if constexpr (std::is_convertible_v<R, Tensors>) {
    return results;
  } else {
    return unpack_tuple<R>(results, std::make_index_sequence<std::tuple_size_v<R>>());
  }
}

}  // namespace detail

// What assume_pure returns. Copies share their traces.
template <typename Function>
class Pure {
 public:
  Pure(Function function, const std::string& name)
      : function_(std::move(function)), state_(detail::make_pure(name)) {}

  template <typename... Arguments>
  auto operator()(const Arguments&... arguments) const {
    using Result = std::invoke_result_t<const Function&, Arguments...>;
    detail::Tensors tensors;
    uint64_t key = sizeof...(arguments);
    (detail::add_argument(arguments, tensors, key), ...);
    // Kept with the trace: gradients of gradients run the function again.
    auto body = [function = function_,
                 fixed = std::make_tuple(arguments...)](const detail::Tensors& traced) {
      size_t next = 0;
      return std::apply(
          [&](const auto&... each) {
            std::tuple<std::decay_t<decltype(each)>...> taken{
                detail::take_argument(each, traced, next)...};
            return detail::pack<Result>(std::apply(function, taken));
          },
          fixed);
    };
    return detail::unpack<Result>(detail::call_pure(*state_, key, tensors, body));
  }

  PureInfo info() const { return detail::pure_info(*state_); }

 private:
  Function function_;
  std::shared_ptr<detail::PureState> state_;
};

// In a function that trains, before it clears gradients: says whose. What becomes of them is then
// part of each call, as if it found them itself by reading these tensors first. Does nothing where
// nothing is traced.
void watch_gradients(const std::vector<at::Tensor>& leaves);

// `function` takes tensors, numbers and enumerators, and returns a tensor, a vector or a tuple of
// tensors. The name stands in errors, profiles and dumps.
template <typename Function>
Pure<Function> assume_pure(Function function, const std::string& name = "pure") {
  return Pure<Function>(std::move(function), name);
}

}  // namespace torch_xla
