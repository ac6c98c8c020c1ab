// The functions that a loaded library takes from others. Any thread.
#pragma once

#include <initializer_list>

namespace torch_xla::pjrt {

struct Redirection {
  const char* name;
  void* function;
};

// From here on `library` (a handle of dlopen) calls these functions instead of those it was bound
// to; nobody else does. Leaves alone what it does not import, or what somebody else has redirected.
void redirect_imports(void* library, std::initializer_list<Redirection> redirections);

}  // namespace torch_xla::pjrt
