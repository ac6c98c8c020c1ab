// A library that imports functions, for src/pjrt/imports_test.cpp.
#include <cstdlib>

extern "C" void allocate_and_free() {
  void* volatile block = std::aligned_alloc(64, 64);
  std::free(block);
}
