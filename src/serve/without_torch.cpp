// What the headers of c10 (c10::SmallVector, c10::ArrayRef) leave to its library, so that the
// library for serving needs none. Its symbols are hidden: in a process that has libc10 both are
// there, and each library has its own.
#include "base/error.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace c10 {

template <>
void SmallVectorBase<uint32_t>::grow_pod(const void* first, size_t least, size_t item) {
  const size_t most = std::numeric_limits<uint32_t>::max();
  if (least > most) {
    throw torch_xla::Error("a vector of " + std::to_string(least) + " items is too large");
  }
  const size_t wanted = std::min(most, std::max(least, 2 * this->capacity() + 1));
  const bool inside = BeginX == first;  // not allocated yet
  void* memory = inside ? std::malloc(wanted * item) : std::realloc(BeginX, wanted * item);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  if (inside) {
    std::memcpy(memory, BeginX, this->size() * item);
  }
  BeginX = memory;
  Capacity = static_cast<uint32_t>(wanted);
}

namespace detail {

void torchCheckFail(const char* function, const char* file, uint32_t line, const char* message) {
  throw torch_xla::Error(std::string(message) + " (" + function + ", " + file + ":" +
                         std::to_string(line) + ")");
}

void torchCheckFail(const char* function, const char* file, uint32_t line,
                    const std::string& message) {
  torchCheckFail(function, file, line, message.c_str());
}

}  // namespace detail
}  // namespace c10
