#include "pjrt/host_malloc.h"

#include "base/env.h"
#include "pjrt/block_pool.h"
#include "pjrt/imports.h"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace torch_xla::pjrt {

namespace {

constexpr size_t kMegabyte = size_t{1} << 20;
constexpr size_t kLarge = BlockPool::kAlignment;  // glibc keeps smaller blocks

bool set_by_the_user() {
  for (const char* name : {"GLIBC_TUNABLES", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_",
                           "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX"}) {
    if (std::getenv(name) != nullptr) {
      return true;
    }
  }
  return false;
}

// Never destroyed: the plugin's threads run to the end of the process.
BlockPool& pool() {
  static auto* instance = new BlockPool;
  return *instance;
}

// What the plugin calls instead of libc.

void* plugin_aligned_alloc(size_t alignment, size_t size) {
  if (size < kLarge || alignment > BlockPool::kAlignment) {
    return std::aligned_alloc(alignment, size);
  }
  void* block = pool().take(size);
  if (block == nullptr) {
    errno = ENOMEM;
  }
  return block;
}

int plugin_posix_memalign(void** result, size_t alignment, size_t size) {
  if (size < kLarge || alignment > BlockPool::kAlignment) {
    return posix_memalign(result, alignment, size);
  }
  void* block = pool().take(size);
  if (block == nullptr) {
    return ENOMEM;
  }
  *result = block;
  return 0;
}

void plugin_free(void* block) {
  if (!pool().give_back(block)) {
    std::free(block);
  }
}

void* plugin_realloc(void* block, size_t size) {
  const size_t old_size = pool().size_of(block);
  if (old_size == 0) {
    return std::realloc(block, size);
  }
  void* moved = std::malloc(size);
  if (moved != nullptr) {
    std::memcpy(moved, block, std::min(size, old_size));
    pool().give_back(block);
  }
  return moved;
}

}  // namespace

void release_freed_memory() {
  pool().release();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void keep_freed_memory(const std::string& plugin) {
  if (!env::flag("TORCH_XLA_KEEP_FREED_MEMORY") || set_by_the_user()) {
    return;
  }
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 * kMegabyte);  // as far as glibc raises it by itself
  mallopt(M_TRIM_THRESHOLD, 512 * kMegabyte);
  mallopt(M_TOP_PAD, 64 * kMegabyte);  // the size of a thread's heap: none is unmapped
#endif
  void* library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_NOLOAD);
  redirect_imports(library, {{"aligned_alloc", reinterpret_cast<void*>(&plugin_aligned_alloc)},
                             {"posix_memalign", reinterpret_cast<void*>(&plugin_posix_memalign)},
                             {"realloc", reinterpret_cast<void*>(&plugin_realloc)},
                             {"free", reinterpret_cast<void*>(&plugin_free)}});
  if (library != nullptr) {
    dlclose(library);  // the reference of this function only
  }
}

}  // namespace torch_xla::pjrt
