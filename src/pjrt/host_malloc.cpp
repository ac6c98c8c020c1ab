#include "pjrt/host_malloc.h"

#include "base/env.h"
#include "pjrt/imports.h"
#include "pjrt/live_buffers.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace torch_xla::pjrt {

namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

bool set_by_the_user() {
  for (const char* name : {"GLIBC_TUNABLES", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_",
                           "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX"}) {
    if (std::getenv(name) != nullptr) {
      return true;
    }
  }
  return false;
}

// Since keep_freed_memory(). Never destroyed: the plugin's threads run to the end of the process.
std::atomic<HostArena*> arena{nullptr};
std::atomic<void (*)(HostArena&)> begin_arena_user{nullptr};
HostArena* held = nullptr;  // around a fork

// Of all clients: one of another plugin finds it there.
void make_arena() {
  // Holes between blocks that stay are addresses without memory, which there must be enough of.
  constexpr size_t kAddressesPerByte = 8;
  static auto* made = new HostArena(kAddressesPerByte * static_cast<size_t>(host_memory_bytes()));
  HostArena* none = nullptr;
  auto* begin = begin_arena_user.load();
  if (arena.compare_exchange_strong(none, made) && begin != nullptr) {
    begin(*made);
  }
}

// Null for what is left to malloc.
void* take_large(size_t alignment, size_t size) {
  constexpr bool kExpectFreed = true;
  return size < kLargeBlock || alignment > HostArena::kAlignment
             ? nullptr
             : arena.load()->take(size, kExpectFreed);
}

// What the plugin calls instead of libc.

void* plugin_aligned_alloc(size_t alignment, size_t size) {
  void* block = take_large(alignment, size);
  return block != nullptr ? block : std::aligned_alloc(alignment, size);
}

int plugin_posix_memalign(void** result, size_t alignment, size_t size) {
  if (void* block = take_large(alignment, size)) {
    *result = block;
    return 0;
  }
  return posix_memalign(result, alignment, size);
}

void plugin_free(void* block) {
  if (HostArena* ours = arena; ours->owns(block)) {
    ours->give_back(block);
  } else {
    std::free(block);
  }
}

void* plugin_realloc(void* block, size_t size) {
  HostArena* ours = arena;
  if (!ours->owns(block)) {
    return std::realloc(block, size);
  }
  void* moved = std::malloc(size);
  if (moved != nullptr) {
    std::memcpy(moved, block, std::min(size, ours->size_of(block)));
    ours->give_back(block);
  }
  return moved;
}

}  // namespace

void set_arena_user(void (*begin)(HostArena&)) { begin_arena_user = begin; }

void release_freed_memory() {
  if (HostArena* ours = arena) {
    ours->release();
  }
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void hold_arena() NOT_ANALYSED {
  held = arena;
  if (held != nullptr) {
    held->before_fork();
  }
}

void let_arena_go(bool in_child) NOT_ANALYSED {
  if (held != nullptr) {
    held->after_fork(in_child);
  }
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
  make_arena();
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
