#include "ir/signature.h"

#include "base/hasher.h"
#include "base/mutex.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>

namespace torch_xla {

namespace {

void add_dims(Hasher& hasher, c10::ArrayRef<int64_t> dims) {
  hasher.add(dims.size());
  for (int64_t dim : dims) {
    hasher.add(static_cast<uint64_t>(dim));
  }
}

struct AttributeHasher {
  Hasher& hasher;
  void operator()(std::monostate) { hasher.add(uint64_t{0}); }
  void operator()(bool v) { hasher.add(uint64_t{v}); }
  void operator()(int64_t v) { hasher.add(static_cast<uint64_t>(v)); }
  void operator()(double v) { hasher.add(std::bit_cast<uint64_t>(v)); }
  void operator()(const std::string& v) { hasher.add(std::string_view(v)); }
  void operator()(DType v) { hasher.add(static_cast<uint64_t>(v)); }
  void operator()(OperandRef v) { hasher.add(static_cast<uint64_t>(v.index)); }
  void operator()(NumberRef v) {
    hasher.add(static_cast<uint64_t>(v.slot));
    hasher.add(static_cast<uint64_t>(v.dtype) * 4 + v.is_tensor * 2 + v.wrapped);
  }
  template <typename T>
  void operator()(const std::vector<T>& list) {
    hasher.add(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      (*this)(static_cast<T>(list[i]));
    }
  }
};

// Of doubles the bits: a NaN is itself.
bool same(const std::vector<double>& x, const std::vector<double>& y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](double a, double b) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
  });
}

bool same(const Attribute& x, const Attribute& y) {
  if (x.index() != y.index()) {
    return false;
  }
  if (const auto* number = std::get_if<double>(&x)) {
    return same(std::vector{*number}, std::vector{std::get<double>(y)});
  }
  const auto* numbers = std::get_if<std::vector<double>>(&x);
  return numbers != nullptr ? same(*numbers, std::get<std::vector<double>>(y)) : x == y;
}

// What the hash is of.
bool same(const Signature& x, const Signature& y) {
  return x.op == y.op && x.tier == y.tier && x.random == y.random &&
         x.number_kinds == y.number_kinds && x.operands == y.operands && x.outputs == y.outputs &&
         std::equal(x.arguments.begin(), x.arguments.end(), y.arguments.begin(), y.arguments.end(),
                    [](const Attribute& a, const Attribute& b) { return same(a, b); });
}

// All signatures that somebody has.
struct Interned {
  Mutex mutex;
  std::unordered_map<uint64_t, std::weak_ptr<const Signature>> known GUARDED_BY(mutex);

  static Interned& instance() {
    static auto* interned = new Interned;  // the last signatures outlive main()
    return *interned;
  }

  void release(const Signature* signature) {
    {
      MutexLock lock(mutex);
      auto found = known.find(signature->hash);
      if (found != known.end() && found->second.expired()) {
        known.erase(found);
      }
    }
    delete signature;  // what it holds may need the lock
  }
};

// A forked child drops signatures, too. Registered before the trace lock is (pjrt/fork_guard.cpp),
// so that this one is taken after it.
void before_fork() NOT_ANALYSED { Interned::instance().mutex.lock(); }
void after_fork() NOT_ANALYSED { Interned::instance().mutex.unlock(); }
[[maybe_unused]] const int watched = pthread_atfork(&before_fork, &after_fork, &after_fork);

}  // namespace

OutputSpec make_output_spec(DType dtype, c10::ArrayRef<int64_t> sizes,
                            c10::ArrayRef<int64_t> strides) {
  OutputSpec spec;
  spec.dtype = dtype;
  spec.sizes.assign(sizes.begin(), sizes.end());
  spec.strides.assign(strides.begin(), strides.end());
  spec.frame_to_sizes.resize(sizes.size());
  std::iota(spec.frame_to_sizes.begin(), spec.frame_to_sizes.end(), 0);
  bool row_major = true;
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    row_major = row_major && (sizes[i] == 1 || strides[i] == stride);
    stride *= sizes[i];
  }
  if (!row_major && product(sizes) > 0) {
    std::stable_sort(spec.frame_to_sizes.begin(), spec.frame_to_sizes.end(),
                     [&](int64_t x, int64_t y) { return strides[x] > strides[y]; });
  }
  spec.frame.dtype = dtype;
  for (int64_t dim : spec.frame_to_sizes) {
    spec.frame.dims.push_back(sizes[dim]);
  }
  return spec;
}

int64_t moved_bytes(const Signature& signature) {
  int64_t bytes = 0;
  for (const Window& window : signature.operands) {
    bytes += window.numel() * static_cast<int64_t>(c10::elementSize(window.dtype));
  }
  for (const OutputSpec& output : signature.outputs) {
    bytes += output.frame.nbytes();
  }
  return bytes;
}

uint64_t finish_signature(Signature& signature) {
  Hasher hasher;
  hasher.add(std::string_view(signature.op));
  for (const Attribute& argument : signature.arguments) {
    hasher.add(argument.index());
    std::visit(AttributeHasher{hasher}, argument);
  }
  for (const Window& window : signature.operands) {
    hasher.add(static_cast<uint64_t>(window.dtype));
    add_dims(hasher, window.sizes);
    add_dims(hasher, window.strides);
    hasher.add(static_cast<uint64_t>(window.offset));
    hasher.add(static_cast<uint64_t>(window.extent) * 4 + static_cast<uint64_t>(window.lies));
  }
  for (const OutputSpec& output : signature.outputs) {
    hasher.add(static_cast<uint64_t>(output.dtype) * 2 + output.defined);
    add_dims(hasher, output.sizes);
    add_dims(hasher, output.strides);
    add_dims(hasher, output.frame.dims);
  }
  for (Number::Kind kind : signature.number_kinds) {
    hasher.add(static_cast<uint64_t>(kind));
  }
  hasher.add(static_cast<uint64_t>(signature.random) + 2 * static_cast<uint64_t>(signature.tier));
  signature.hash = hasher.low();
  return signature.hash;
}

SignaturePtr intern(Signature signature) {
  finish_signature(signature);
  Interned& interned = Interned::instance();
  SignaturePtr known;  // released after the lock, as are others of the same hash
  std::vector<SignaturePtr> others;
  MutexLock lock(interned.mutex);
  while (true) {
    std::weak_ptr<const Signature>& slot = interned.known[signature.hash];
    known = slot.lock();
    if (known == nullptr) {
      known = {new Signature(std::move(signature)),
               [](const Signature* last) { Interned::instance().release(last); }};
      slot = known;
      return known;
    }
    if (same(*known, signature)) {
      return known;
    }
    others.push_back(std::move(known));
    ++signature.hash;
  }
}

SignaturePtr find_signature(uint64_t hash) {
  Interned& interned = Interned::instance();
  MutexLock lock(interned.mutex);
  auto found = interned.known.find(hash);
  return found == interned.known.end() ? nullptr : found->second.lock();
}

size_t signature_count() {
  Interned& interned = Interned::instance();
  MutexLock lock(interned.mutex);
  return interned.known.size();
}

}  // namespace torch_xla
