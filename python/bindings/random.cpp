#include "bindings.h"

#include "record/generator.h"

namespace torch_xla {

void bind_random(pybind11::module& m) {
  m.def(
      "seed",
      [](int device, int64_t seed) {
        if (device < 0) {
          seed_all_devices(static_cast<uint64_t>(seed));
        } else {
          xla_generator(default_generator(device)).set_current_seed(static_cast<uint64_t>(seed));
        }
      },
      NoGil());
  m.def(
      "rng_state_tensor",
      [](int device) { return xla_generator(default_generator(device)).state_copy(); }, NoGil());
  m.def(
      "restore_rng_state_tensor",
      [](int device, const at::Tensor& state) {
        xla_generator(default_generator(device)).restore(state);
      },
      NoGil());
  m.def("get_rng_state", &rng_state_number, NoGil());
  m.def("set_rng_state", &set_rng_state_number, NoGil());
  m.def("default_generator", [](int device) { return default_generator(device); });
}

}  // namespace torch_xla
