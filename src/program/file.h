// A descriptor that closes with its scope.
#pragma once

#include <unistd.h>

namespace torch_xla {

struct File {
  explicit File(int descriptor) : descriptor(descriptor) {}
  ~File() {
    if (descriptor >= 0) {
      close(descriptor);
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int descriptor;  // negative: could not be opened
};

}  // namespace torch_xla
