#include "host_ops/host_allocator.h"

#include "pjrt/host_malloc.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>

namespace torch_xla {

namespace {

pjrt::HostArena* shared_arena = nullptr;
std::atomic<c10::Allocator*> former{nullptr};  // which still has the small blocks

void free_block(void* block) {
  if (shared_arena->owns(block)) {
    c10::profiledCPUMemoryReporter().Delete(block);
    shared_arena->give_back(block);
  } else {
    former.load(std::memory_order_relaxed)->raw_deallocate(block);
  }
}

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    void* block = size < pjrt::kLargeBlock ? nullptr : shared_arena->take(size);
    if (block == nullptr) {
      block = former.load(std::memory_order_relaxed)->raw_allocate(size);
    } else {
      c10::profiledCPUMemoryReporter().New(block, size);
    }
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    default_copy_data(to, from, size);
  }
};

// Never destroyed: tensors may outlive whatever a dying process destroys.
void use(pjrt::HostArena& arena) {
  c10::Allocator* before = c10::GetCPUAllocator();
  if (before->raw_deleter() != nullptr) {
    shared_arena = &arena;
    former = before;
    static auto* allocator = new HostAllocator;
    c10::SetCPUAllocator(allocator);
  }
}

[[maybe_unused]] const int registered = (pjrt::set_arena_user(&use), 0);

}  // namespace

bool is_plain_host_memory(const c10::Storage& storage) {
  const c10::DeleterFnPtr deleter = storage.data_ptr().get_deleter();
  const c10::Allocator* before = former.load(std::memory_order_relaxed);
  return deleter == c10::GetCPUAllocator()->raw_deleter() ||
         (before != nullptr && deleter == before->raw_deleter());
}

}  // namespace torch_xla
