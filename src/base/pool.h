// Memory for objects that come and go by the thousand, as a step's values do: what is freed is kept
// for the next ones of its size. Any thread; each has its own store.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace torch_xla {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kPoolsKeep = false;  // sanitizers want to see each object come and go
#else
inline constexpr bool kPoolsKeep = true;
#endif

template <size_t Size>
class Pool {
 public:
  static void* take() {
    Store& store = own();
    if (store.first == nullptr) {
      return ::operator new(Size);
    }
    Block* block = store.first;
    store.first = block->next;
    --store.count;
    return block;
  }

  static void give(void* memory) {
    constexpr size_t kKept = size_t{4} << 20;  // bytes
    Store& store = own();
    if (!kPoolsKeep || store.ended || store.count * Size >= kKept) {
      ::operator delete(memory);
      return;
    }
    static thread_local const Emptied at_the_end;
    static_cast<void>(at_the_end);
    store.first = new (memory) Block{store.first};
    ++store.count;
  }

 private:
  struct Block {
    Block* next;
  };
  static_assert(Size >= sizeof(Block));
  // Without a destructor: what outlives the thread's own objects may still be freed.
  struct Store {
    Block* first = nullptr;
    size_t count = 0;
    bool ended = false;
  };
  static Store& own() {
    static thread_local Store store;
    return store;
  }
  struct Emptied {
    ~Emptied() {
      Store& store = own();
      store.ended = true;
      while (store.first != nullptr) {
        Block* block = store.first;
        store.first = block->next;
        ::operator delete(block);
      }
    }
  };
};

// For std::allocate_shared.
template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class Other>
  PoolAllocator(const PoolAllocator<Other>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t count) {
    return count == 1 ? static_cast<T*>(Pool<sizeof(T)>::take())
                      : std::allocator<T>().allocate(count);
  }
  void deallocate(T* memory, size_t count) {
    count == 1 ? Pool<sizeof(T)>::give(memory) : std::allocator<T>().deallocate(memory, count);
  }
  friend bool operator==(const PoolAllocator&, const PoolAllocator&) { return true; }
};

// In a class: its objects come from a pool.
#define POOLED(T)                                                                               \
  static void* operator new(size_t size) {                                                      \
    return size == sizeof(T) ? ::torch_xla::Pool<sizeof(T)>::take() : ::operator new(size);     \
  }                                                                                             \
  static void operator delete(void* memory, size_t size) {                                      \
    size == sizeof(T) ? ::torch_xla::Pool<sizeof(T)>::give(memory) : ::operator delete(memory); \
  }

template <class T, class... Arguments>
std::shared_ptr<T> make_pooled(Arguments&&... arguments) {
  return std::allocate_shared<T>(PoolAllocator<T>(), std::forward<Arguments>(arguments)...);
}

}  // namespace torch_xla
