#include "host_ops/write_at.h"

#include "host_ops/lanes.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace torch_xla {

namespace {

// Of numbers or of lanes of them.
template <Combine kCombine, typename Numbers>
TORCH_XLA_INLINE Numbers combined(Numbers current, Numbers update) {
  if constexpr (kCombine == Combine::Add) {
    return current + update;
  } else if constexpr (kCombine == Combine::Multiply) {
    return current * update;
  } else if constexpr (kCombine == Combine::Replace) {
    return update;
  } else {  // NaN where one is
    const auto further = kCombine == Combine::Maximum ? current > update : current < update;
    const Numbers found = further ? current : update;
    return current == current ? found : current;
  }
}

template <Combine kCombine, typename T>
TORCH_XLA_INLINE void write_slice(T* to, const T* from, int64_t length) {
  using Lanes [[gnu::vector_size(16)]] = T;
  constexpr int64_t kCount = sizeof(Lanes) / sizeof(T);
  int64_t i = 0;
  for (; i + kCount <= length; i += kCount) {
    Lanes current, update;
    std::memcpy(&current, to + i, sizeof(Lanes));
    std::memcpy(&update, from + i, sizeof(Lanes));
    current = combined<kCombine>(current, update);
    std::memcpy(to + i, &current, sizeof(Lanes));
  }
  for (; i < length; ++i) {
    to[i] = combined<kCombine>(to[i], from[i]);
  }
}

// What one thread writes to: some of the outer parts, and of each some numbers of its places.
struct Part {
  Range outer, inner;
};

// An index for each slice.
template <Combine kCombine, typename T>
void write_slices(const WritesAt& w, Part part, const T* updates, T* result) {
  for (int64_t o = part.outer.start; o < part.outer.start + part.outer.length; ++o) {
    for (int64_t j = 0; j < w.count; ++j) {
      if (const int64_t at = w.index[j]; at >= 0 && at < w.size) {
        write_slice<kCombine>(result + (o * w.size + at) * w.inner,
                              updates + (o * w.count + j) * w.inner, w.inner);
      }
    }
  }
}

// To places of one number, `count` of them in each part. `next`: from the indices of one part to
// those of the next.
template <Combine kCombine, typename T>
void write_numbers(const WritesAt& w, Part part, int64_t next, const T* updates, T* result) {
  for (int64_t o = part.outer.start; o < part.outer.start + part.outer.length; ++o) {
    const int64_t* index = w.index + o * next;
    const T* from = updates + o * w.count;
    T* to = result + o * w.size;
    for (int64_t j = 0; j < w.count; ++j) {
      if (const int64_t at = index[j]; at >= 0 && at < w.size) {
        to[at] = combined<kCombine>(to[at], from[j]);
      }
    }
  }
}

// An index for each number of each slice.
template <Combine kCombine, typename T>
void write_each(const WritesAt& w, Part part, const T* updates, T* result) {
  for (int64_t o = part.outer.start; o < part.outer.start + part.outer.length; ++o) {
    T* to = result + o * w.size * w.inner;
    for (int64_t j = 0; j < w.count; ++j) {
      const int64_t slice = (o * w.count + j) * w.inner;
      for (int64_t i = part.inner.start; i < part.inner.start + part.inner.length; ++i) {
        if (const int64_t at = w.index[slice + i]; at >= 0 && at < w.size) {
          T& place = to[at * w.inner + i];
          place = combined<kCombine>(place, updates[slice + i]);
        }
      }
    }
  }
}

std::vector<Part> parts_of(const WritesAt& w, int64_t threads) {
  constexpr int64_t kWorthAPart = 1 << 12, kFar = 256;  // numbers, of different lines of memory
  const int64_t worth = w.outer * w.count * w.inner / kWorthAPart;
  const int64_t count = std::clamp<int64_t>(worth, 1, std::max<int64_t>(threads, 1));
  std::vector<Part> parts;
  if (w.outer >= count || !w.of_each) {
    for (Range outer : ranges(w.outer, count)) {
      parts.push_back({outer, {0, w.inner}});
    }
  } else {
    for (Range inner : ranges(w.inner, count, kFar)) {
      parts.push_back({{0, w.outer}, inner});
    }
  }
  return parts;
}

template <Combine kCombine, typename T>
void write(Workers& workers, const WritesAt& w, const void* updates, void* result) {
  const std::vector<Part> parts = parts_of(w, workers.count());
  run_pieces(workers, parts.size(), [&](size_t i) {
    const auto* from = static_cast<const T*>(updates);
    auto* to = static_cast<T*>(result);
    if (w.inner == 1) {
      write_numbers<kCombine>(w, parts[i], w.of_each ? w.count : 0, from, to);
    } else if (w.of_each) {
      write_each<kCombine>(w, parts[i], from, to);
    } else {
      write_slices<kCombine>(w, parts[i], from, to);
    }
  });
}

// Calls with `call(std::type_identity<T>)`; false: there is none for the type.
template <typename Call>
bool with_type_written(Combine combine, at::ScalarType dtype, const Call& call) {
  if (combine == Combine::Replace) {  // bits
    switch (c10::elementSize(dtype)) {
      case 1:
        return call(std::type_identity<uint8_t>()), true;
      case 2:
        return call(std::type_identity<uint16_t>()), true;
      case 4:
        return call(std::type_identity<uint32_t>()), true;
      case 8:
        return call(std::type_identity<uint64_t>()), true;
      default:
        return false;
    }
  }
  switch (dtype) {
    case at::kFloat:
      return call(std::type_identity<float>()), true;
    case at::kDouble:
      return call(std::type_identity<double>()), true;
    case at::kInt:
      return call(std::type_identity<int32_t>()), true;
    case at::kLong:
      return call(std::type_identity<int64_t>()), true;
    default:
      return false;
  }
}

}  // namespace

void write_at(Workers& workers, const WritesAt& writes, Combine combine, at::ScalarType dtype,
              const void* updates, void* result) {
  const bool known = with_type_written(combine, dtype, [&]<typename T>(std::type_identity<T>) {
    switch (combine) {
      case Combine::Replace:
        return write<Combine::Replace, T>(workers, writes, updates, result);
      case Combine::Add:
        return write<Combine::Add, T>(workers, writes, updates, result);
      case Combine::Multiply:
        return write<Combine::Multiply, T>(workers, writes, updates, result);
      case Combine::Maximum:
        return write<Combine::Maximum, T>(workers, writes, updates, result);
      case Combine::Minimum:
        return write<Combine::Minimum, T>(workers, writes, updates, result);
    }
  });
  TORCH_CHECK(known, "numbers of type ", dtype, " cannot be combined");
}

}  // namespace torch_xla
