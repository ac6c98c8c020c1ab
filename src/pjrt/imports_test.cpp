// Compiled for an executable at a fixed address, as Debian's own Python is one.
#include "pjrt/imports.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace torch_xla::pjrt {
namespace {

// Which is therefore in the executable itself.
[[gnu::noinline]] void* address_of_free() { return reinterpret_cast<void*>(&std::free); }

int allocated = 0, freed = 0, others = 0;

void* count_allocated(size_t alignment, size_t size) {
  ++allocated;
  return std::aligned_alloc(alignment, size);
}
void count_freed(void* block) {
  ++freed;
  std::free(block);
}
void count_others(void* block) {
  ++others;
  std::free(block);
}

class Imports : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(library_, nullptr) << dlerror();
    allocated = freed = others = 0;
  }
  void TearDown() override { dlclose(library_); }

  void run() const { reinterpret_cast<void (*)()>(dlsym(library_, "allocate_and_free"))(); }

  void* library_ = dlopen(IMPORTS_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
};

const Redirection kAllocating{"aligned_alloc", reinterpret_cast<void*>(&count_allocated)};
const Redirection kFreeing{"free", reinterpret_cast<void*>(&count_freed)};

TEST_F(Imports, AreFoundWhereTheExecutableTakesTheirAddressesToo) {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(address_of_free(), dlsym(libc, "free")) << "this executable has no fixed address";
  redirect_imports(library_, {kAllocating, kFreeing, {"not_imported", nullptr}});
  run();
  EXPECT_EQ(allocated, 1);
  EXPECT_EQ(freed, 1);
}

TEST_F(Imports, OfOthersAreLeftWithAllThatBelongsToThem) {
  redirect_imports(library_, {{"free", reinterpret_cast<void*>(&count_others)}});
  redirect_imports(library_, {kAllocating, kFreeing});
  run();
  EXPECT_EQ(allocated, 0);
  EXPECT_EQ(freed, 0);
  EXPECT_EQ(others, 1);
}

}  // namespace
}  // namespace torch_xla::pjrt
