#include "bindings.h"

#include "record/generator.h"

namespace torch_xla {

void bind_random(pybind11::module& m) {
  m.def("seed", [](int device, int64_t seed) {
    default_generator(device).get<XlaGenerator>()->set_current_seed(static_cast<uint64_t>(seed));
  }, NoGil());
  m.def("get_rng_state", &rng_state_number, NoGil());
  m.def("set_rng_state", &set_rng_state_number, NoGil());
  m.def("default_generator", [](int device) { return default_generator(device); });
}

}  // namespace torch_xla
