// The arguments of an unboxed call as the recorder reads them: boxed values without references of
// their own to the device's tensors. The caller has one of each until the call ends. One thread.
#pragma once

#include "trace/tensor.h"

#include <ATen/core/IListRef.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <optional>
#include <span>
#include <tuple>

namespace torch_xla {

namespace lending {

using Loan = c10::MaybeOwnedTraits<at::Tensor>;

// The recorder may replace others in the boxed values, and so drop them.
inline bool is_lent(const at::Tensor& given) {
  return is_xla(given) && !given.is_conj() && !given.is_neg();
}

inline at::Tensor lend(const at::Tensor& given) {
  return is_lent(given) ? Loan::createBorrow(given) : given;
}

inline c10::IValue box(const at::Tensor& given) { return lend(given); }

inline c10::IValue box(const std::optional<at::Tensor>& given) {
  return given ? box(*given) : c10::IValue();
}

template <typename Tensors>
c10::IValue box_list(const Tensors& given) {
  c10::List<at::Tensor> list;
  list.reserve(given.size());
  for (const at::Tensor& tensor : given) {
    list.push_back(lend(tensor));
  }
  return list;
}

inline c10::IValue box(const at::TensorList& given) { return box_list(given); }
inline c10::IValue box(const at::ITensorListRef& given) { return box_list(given); }

template <typename T>
c10::IValue box(const T& given) {
  return c10::IValue(given);
}

inline void take_back(c10::IValue& value, const at::Tensor& given) {
  if (is_lent(given)) {
    at::Tensor lent = std::move(value).toTensor();
    Loan::destroyBorrow(lent);
  }
}

inline void take_back(c10::IValue& value, const std::optional<at::Tensor>& given) {
  if (given) {
    take_back(value, *given);
  }
}

template <typename Tensors>
void take_back_list(c10::IValue& value, const Tensors& given) {
  const c10::List<at::Tensor> list = std::move(value).toTensorList();
  size_t i = 0;
  for (const at::Tensor& tensor : given) {
    if (is_lent(tensor)) {
      at::Tensor lent = list.extract(i);
      Loan::destroyBorrow(lent);
    }
    ++i;
  }
}

inline void take_back(c10::IValue& value, const at::TensorList& given) {
  take_back_list(value, given);
}
inline void take_back(c10::IValue& value, const at::ITensorListRef& given) {
  take_back_list(value, given);
}

template <typename T>
void take_back(c10::IValue&, const T&) {}

}  // namespace lending

template <typename... Given>
class LentArguments {
 public:
  explicit LentArguments(const Given&... given)
      : values_{lending::box(given)...}, given_(given...) {}
  ~LentArguments() { take_back(std::index_sequence_for<Given...>()); }
  LentArguments(const LentArguments&) = delete;
  LentArguments& operator=(const LentArguments&) = delete;

  std::span<c10::IValue> values() { return values_; }

 private:
  template <size_t... I>
  void take_back(std::index_sequence<I...>) {
    (lending::take_back(values_[I], std::get<I>(given_)), ...);
  }

  std::array<c10::IValue, sizeof...(Given)> values_;
  std::tuple<const Given&...> given_;
};

}  // namespace torch_xla
