#include "record/generator.h"

#include "execution/sync.h"
#include "trace/scope.h"

#include <ATen/Utils.h>
#include <ATen/ops/empty.h>
#include <c10/core/DispatchKeySet.h>

#include <cstring>
#include <deque>

namespace torch_xla {

namespace {

at::Tensor host_words(uint64_t key, uint64_t counter) {
  at::Tensor words = at::empty({2}, at::TensorOptions().dtype(at::kUInt64));
  auto* data = static_cast<uint64_t*>(words.mutable_data_ptr());
  data[0] = key;
  data[1] = counter;
  return words;
}

}  // namespace

XlaGenerator::XlaGenerator(int device)
    : c10::GeneratorImpl(device_of(device), c10::DispatchKeySet(c10::DispatchKey::XLA)),
      seed_(c10::default_rng_seed_val) {}

void XlaGenerator::write_state(uint64_t key, uint64_t counter) {
  MutexLock lock(mutex_);
  seed_ = key;
  counter_ = counter;
  state_ = at::Tensor();
}

void XlaGenerator::set_current_seed(uint64_t seed) { write_state(seed, 0); }

uint64_t XlaGenerator::current_seed() const {
  MutexLock lock(mutex_);
  return seed_;
}

uint64_t XlaGenerator::seed() {
  uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

at::Tensor& XlaGenerator::state_tensor() {
  MutexLock lock(mutex_);
  if (!state_.defined()) {
    ScopeGuard outside(nullptr);  // the generator outlives the trace that first draws from it
    state_ = upload(host_words(seed_, counter_), device().index());
  }
  return state_;
}

// Values are shared rather than copied, and seen by a trace as its generator's.
at::Tensor XlaGenerator::state_copy() {
  at::Tensor state = state_tensor();
  at::Generator self(c10::intrusive_ptr<c10::GeneratorImpl>::reclaim_copy(this));
  at::Tensor copy = empty_tensor(at::kUInt64, {2}, {1}, device().index());
  TraceLock lock;
  assign_value(*copy.unsafeGetTensorImpl(), value_of_state(*state.unsafeGetTensorImpl(), self));
  return copy;
}

void XlaGenerator::restore(const at::Tensor& state_copy) {
  TORCH_CHECK(
      is_xla(state_copy) && state_copy.scalar_type() == at::kUInt64 && state_copy.numel() == 2,
      "expected a state that state_copy() made, received a tensor of ", state_copy.numel(), " ",
      state_copy.scalar_type(), " on ", state_copy.device());
  const at::Tensor words = state_copy.clone();  // its storage may hold bytes
  at::Tensor state = state_tensor();
  at::Generator self(c10::intrusive_ptr<c10::GeneratorImpl>::reclaim_copy(this));
  TraceLock lock;
  value_of_state(*state.unsafeGetTensorImpl(), self);
  assign_value(*state.unsafeGetTensorImpl(), value_of(*words.unsafeGetTensorImpl()));
}

void XlaGenerator::adopt(at::Tensor state) {
  MutexLock lock(mutex_);
  state_ = std::move(state);
}

at::Tensor XlaGenerator::host_state() const {
  at::Tensor state;
  {
    MutexLock lock(mutex_);
    if (!state_.defined()) {
      return host_words(seed_, counter_);
    }
    state = state_;
  }
  return to_cpu(state);
}

void XlaGenerator::set_offset(uint64_t offset) { write_state(current_seed(), offset); }

uint64_t XlaGenerator::get_offset() const {
  return static_cast<const uint64_t*>(host_state().const_data_ptr())[1];
}

void XlaGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == 16, "an xla generator's state has 16 bytes, received ",
              state.numel());
  uint64_t words[2];
  std::memcpy(words, state.data(), sizeof(words));
  write_state(words[0], words[1]);
}

c10::intrusive_ptr<c10::TensorImpl> XlaGenerator::get_state() const {
  at::Tensor bytes = at::empty({16}, at::TensorOptions().dtype(at::kByte));
  std::memcpy(bytes.mutable_data_ptr(), host_state().const_data_ptr(), 16);
  return bytes.getIntrusivePtr();
}

XlaGenerator* XlaGenerator::clone_impl() const {
  auto* copy = new XlaGenerator(device().index());
  copy->set_state(*get_state());
  return copy;
}

namespace {

struct DefaultGenerators {
  Mutex mutex;
  std::deque<at::Generator> generators GUARDED_BY(mutex);
  uint64_t seed GUARDED_BY(mutex) = c10::default_rng_seed_val;  // of those not yet made
};

DefaultGenerators& defaults() {
  static auto* instance = new DefaultGenerators;
  return *instance;
}

}  // namespace

const at::Generator& default_generator(int device) {
  TORCH_CHECK(device >= 0, "expected the index of an xla device, received ", device);
  DefaultGenerators& known = defaults();
  MutexLock lock(known.mutex);
  while (known.generators.size() <= static_cast<size_t>(device)) {
    known.generators.push_back(new_generator(static_cast<int>(known.generators.size())));
    known.generators.back().set_current_seed(known.seed);
  }
  return known.generators[device];
}

void seed_all_devices(uint64_t new_seed) {
  DefaultGenerators& known = defaults();
  MutexLock lock(known.mutex);
  known.seed = new_seed;
  for (at::Generator& generator : known.generators) {
    generator.set_current_seed(new_seed);
  }
}

at::Generator new_generator(int device) { return at::make_generator<XlaGenerator>(device); }

// Key and counter in one number: the counter is folded into the key, so that a restored state
// continues the same stream of numbers that the program saw after reading it.
int64_t rng_state_number(int device) {
  auto& generator = xla_generator(default_generator(device));
  // Not current_seed(): a restored state has another key.
  auto bytes = generator.get_state();
  uint64_t words[2];
  std::memcpy(words, bytes->data(), sizeof(words));
  auto [key, counter] = words;
  if (counter != 0) {
    key = (key ^ (counter * 0x9E3779B97F4A7C15ull)) & 0x7FFFFFFFFFFFFFFFull;
    generator.set_current_seed(key);
  }
  return static_cast<int64_t>(key);
}

void set_rng_state_number(int device, int64_t number) {
  xla_generator(default_generator(device)).set_current_seed(static_cast<uint64_t>(number));
}

XlaGenerator& xla_generator(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == c10::DeviceType::XLA,
              "Expected a 'xla' device type for generator but found '", generator.device().type(),
              "'");
  return *generator.get<XlaGenerator>();
}

}  // namespace torch_xla
