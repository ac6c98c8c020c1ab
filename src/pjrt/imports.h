// The functions that a loaded library takes from others. Any thread.
#pragma once

#include <initializer_list>

namespace torch_xla::pjrt {

struct Redirection {
  const char* name;
  void* function;
};

// From here on `library` (a handle of dlopen) calls these functions instead of those it was bound
// to; nobody else does. It need not import all of them. Leaves all alone where somebody else has
// redirected one: what belongs together, as allocating and freeing do, stays together.
void redirect_imports(void* library, std::initializer_list<Redirection> redirections);

}  // namespace torch_xla::pjrt
