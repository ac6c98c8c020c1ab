#include "pjrt/doubles.h"

#include "pjrt/client.h"

#include <atomic>

namespace torch_xla::pjrt {

namespace {
std::atomic<bool> doubles_are_there{true};
}  // namespace

bool has_doubles() { return doubles_are_there.load(std::memory_order_relaxed); }

void set_has_doubles(bool has) { doubles_are_there.store(has, std::memory_order_relaxed); }

DType without_doubles(DType dtype) {
  switch (dtype) {
    case DType::Double:
      return DType::Float;
    case DType::ComplexDouble:
      return DType::ComplexFloat;
    default:
      return dtype;
  }
}

DType device_dtype(DType dtype) {
  const DType narrow = without_doubles(dtype);
  if (narrow != dtype) {
    client();  // tells
  }
  return has_doubles() ? dtype : narrow;
}

}  // namespace torch_xla::pjrt
