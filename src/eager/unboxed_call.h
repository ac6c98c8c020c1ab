// What host_call.h does, of an operator whose C++ signature is known: nothing is boxed. Any thread.
#pragma once

#include "eager/host_call.h"
#include "trace/for_each_tensor.h"

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>

#include <optional>
#include <tuple>
#include <vector>

namespace torch_xla::eager {

// A parameter of a kernel: what it is given, and how the kernel sees that.
template <typename Parameter>
struct HostArgument {
  using Given = std::remove_cvref_t<Parameter>;
  HostArgument(HostTensors&, const Given& given) : host(given) {}
  const Given& get() const { return host; }
  const Given& host;
};

template <>
struct HostArgument<const at::Tensor&> {
  HostArgument(HostTensors& tensors, const at::Tensor& given) : host(tensors.to_host(given)) {}
  const at::Tensor& get() const { return host; }
  const at::Tensor& host;
};

template <>
struct HostArgument<at::Tensor&> {
  HostArgument(HostTensors& tensors, at::Tensor&) : host(tensors.next_to_host()) {}
  at::Tensor& get() const { return host; }
  at::Tensor& host;
};

template <>
struct HostArgument<const std::optional<at::Tensor>&> {
  using Given = std::optional<at::Tensor>;
  HostArgument(HostTensors& tensors, const Given& given) {
    if (given) {
      host = tensors.to_host(*given);
    }
  }
  const Given& get() const { return host; }
  Given host;
};

template <>
struct HostArgument<std::optional<c10::Device>> {
  using Given = std::optional<c10::Device>;
  HostArgument(HostTensors&, const Given& given) : host(given) {
    if (host && host->type() == c10::DeviceType::XLA) {
      host = c10::Device(c10::kCPU);
    }
  }
  const Given& get() const { return host; }
  Given host;
};

template <typename Tensors>
struct HostArgumentOfTensors {
  HostArgumentOfTensors(HostTensors& tensors, const Tensors& given) {
    host.reserve(given.size());
    for (const at::Tensor& tensor : given) {
      host.push_back(tensors.to_host(tensor));
    }
  }
  at::TensorList get() const { return host; }
  std::vector<at::Tensor> host;
};
template <>
struct HostArgument<at::TensorList> : HostArgumentOfTensors<at::TensorList> {
  using HostArgumentOfTensors::HostArgumentOfTensors;
};
template <>
struct HostArgument<const at::ITensorListRef&> : HostArgumentOfTensors<at::ITensorListRef> {
  using HostArgumentOfTensors::HostArgumentOfTensors;
};

template <>
struct HostArgument<const c10::List<std::optional<at::Tensor>>&> {
  using Given = c10::List<std::optional<at::Tensor>>;
  HostArgument(HostTensors& tensors, const Given& given) {
    const c10::IValue boxed(given);
    for (const c10::IValue& element : boxed.toListRef()) {
      host.push_back(element.isTensor() ? std::optional(tensors.to_host(element.toTensor()))
                                        : std::nullopt);
    }
  }
  const Given& get() const { return host; }
  Given host;
};

// What a call returns that made it, of what the kernel returned.
inline at::Tensor adopt_all(HostTensors& tensors, at::Tensor result) {
  return tensors.adopt(std::move(result));
}
inline std::vector<at::Tensor> adopt_all(HostTensors& tensors, std::vector<at::Tensor> results) {
  for (at::Tensor& result : results) {
    result = tensors.adopt(std::move(result));
  }
  return results;
}
template <typename... Results>
std::tuple<Results...> adopt_all(HostTensors& tensors, std::tuple<Results...> results) {
  return std::apply(
      [&](Results&... result) { return std::tuple{adopt_all(tensors, std::move(result))...}; },
      results);
}

// The argument that an operator of the forms `add_` and `add.out` returns.
at::Tensor& written_of(at::Tensor& written, const auto&...) { return written; }
template <typename First, typename... Rest>
requires(!std::is_same_v<First, at::Tensor>) at::Tensor& written_of(const First&, Rest&... rest) {
  return written_of(rest...);
}

template <typename Op, typename Schema = typename Op::schema>
struct UnboxedCall;
template <typename Op, typename Result, typename... Parameters>
struct UnboxedCall<Op, Result(Parameters...)> {
  // `device`: of the results, when no argument says it.
  static Result run(const HostOperator& op, int device, Parameters... given) {
    metrics::TimedNowAndThen timed(call_time());
    HostTensors tensors(op, device);
    size_t place = 0;
    auto add_all = [&](const auto& argument) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(argument)>,
                                   std::optional<c10::Device>>) {
        if (argument) {
          tensors.use_device(*argument);
        }
      }
      const bool written = op.writes(place++);
      for_each_tensor(argument, [&](const at::Tensor& tensor) { tensors.add(tensor, written); });
    };
    (add_all(given), ...);
    tensors.open();
    KernelDispatch dispatch;
    std::tuple<HostArgument<Parameters>...> host{HostArgument<Parameters>(tensors, given)...};
    // The dispatcher has chosen once, by the xla tensors: what is plain for these is for the CPU's.
    auto call = [](const auto&... argument) -> Result {
      return Op::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), argument.get()...);
    };
    if constexpr (std::is_void_v<Result>) {
      std::apply(call, host);
      tensors.update_written();
    } else if constexpr (std::is_lvalue_reference_v<Result>) {
      std::apply(call, host);
      tensors.update_written();
      return written_of(given...);
    } else {
      Result results = std::apply(call, host);
      tensors.update_written();
      return adopt_all(tensors, std::move(results));
    }
  }
};

}  // namespace torch_xla::eager
