// The kernel of an operator whose C++ signature is known: nothing is boxed in eager mode, and what
// is recorded is lent. Each operator's is some 2 KB of machine code, so that only those have one
// that programs call often.
#pragma once

#include "eager/unboxed_call.h"
#include "record/call.h"
#include "record/eager_call.h"
#include "record/lent.h"
#include "record/recorder.h"
#include "trace/for_each_tensor.h"

#include <torch/library.h>

#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>

namespace torch_xla::unboxed {

// What a call returns, of its fresh results or of its arguments.
template <typename Result>
struct Returned {
  static Result of(Returns& fresh) { return std::move(fresh[0]).template to<Result>(); }
};
template <typename... Results>
struct Returned<std::tuple<Results...>> {
  static std::tuple<Results...> of(Returns& fresh) {
    return of(fresh, std::index_sequence_for<Results...>());
  }
  template <size_t... I>
  static std::tuple<Results...> of(Returns& fresh, std::index_sequence<I...>) {
    return {std::move(fresh[I]).template to<Results>()...};
  }
};

inline int64_t elements_in(const auto&... given) {
  int64_t elements = 0;
  auto add = [&](const at::Tensor& tensor) { elements += elements_of(tensor); };
  (for_each_tensor(given, add), ...);
  return elements;
}

// Whether the CPU's kernel takes the arguments as they are.
inline bool are_plain(const OpInfo& info, const auto&... given) {
  bool plain = true;
  auto look_at = [&](const at::Tensor& tensor) {
    plain = plain && !tensor.is_conj() && !tensor.is_neg() &&
            (info.host.faster == nullptr || !may_be_faster(*info.host.faster, tensor));
  };
  (for_each_tensor(given, look_at), ...);
  return plain;
}

template <typename Op, typename Schema = typename Op::schema>
struct Kernel;
template <typename Op, typename Result, typename... Given>
struct Kernel<Op, Result(Given...)> {
  static torch::CppFunction make(const c10::OperatorHandle& op) {
    auto recorded = std::make_shared<RecordedOperator>(op);
    return torch::CppFunction(
        [recorded](Given... given) -> Result { return run(recorded->info(), given...); });
  }

  static Result run(OpInfo& info, Given... given) {
    const bool on_host = runs_on_host(info, elements_in(given...));
    if (on_host && has_plain_kernel(info) && are_plain(info, given...)) {
      info.counter->add();
      return eager::UnboxedCall<Op>::run(info.host, current_device(), given...);
    }
    Returns fresh;
    {
      LentArguments<std::remove_cvref_t<Given>...> lent(given...);
      record_op(info, lent.values(), fresh, on_host);
    }
    if constexpr (std::is_void_v<Result>) {
      return;
    } else if constexpr (std::is_lvalue_reference_v<Result>) {
      return eager::written_of(given...);
    } else {
      return Returned<Result>::of(fresh);
    }
  }
};

using MakeKernel = torch::CppFunction (*)(const c10::OperatorHandle& op);
using Kernels = std::unordered_map<std::string, MakeKernel>;  // by their operators' full names

template <typename... Ops>
Kernels kernels_of() {
  return {{std::string(Ops::name) + "." + Ops::overload_name, &Kernel<Ops>::make}...};
}

Kernels elementwise();       // and constants
Kernels along_dimensions();  // reductions, copies by index, shapes
Kernels layers();
Kernels of_lists();

}  // namespace torch_xla::unboxed
