// Random state of the xla device. The state is a u64[2] tensor (key, counter) on the device: a
// drawing operator takes it and leaves the next one, so that a step neither recompiles nor
// transfers. Thread-safe as PyTorch's generators are (drawing order is the recording order).
#pragma once

#include "base/mutex.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace torch_xla {

class XlaGenerator : public c10::GeneratorImpl {
 public:
  explicit XlaGenerator(int device);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // The device tensor; made on first use, so that seeding does not start the client.
  at::Tensor& state_tensor();
  // Copies of the state that stay on the device, for what saves and restores it within a step.
  at::Tensor state_copy();
  // Draws from now on from (and into) this tensor.
  void adopt(at::Tensor state);
  void restore(const at::Tensor& state_copy);

 private:
  XlaGenerator* clone_impl() const override;
  void write_state(uint64_t key, uint64_t counter);
  at::Tensor host_state() const;

  mutable Mutex mutex_;
  uint64_t seed_ GUARDED_BY(mutex_);
  uint64_t counter_ GUARDED_BY(mutex_) = 0;  // of the state not yet on the device
  at::Tensor state_ GUARDED_BY(mutex_);
};

const at::Generator& default_generator(int device);
at::Generator new_generator(int device);
// Seeds the default generators, those not yet made included. Starts no client.
void seed_all_devices(uint64_t seed);
// The default generator's state as one signed 64-bit number, as xm.get_rng_state gives it.
int64_t rng_state_number(int device);
void set_rng_state_number(int device, int64_t number);
XlaGenerator& xla_generator(const at::Generator& generator);

}  // namespace torch_xla
