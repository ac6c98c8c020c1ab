// SPMD mode: every program runs on all devices of the process, as one, and the device that users
// see is xla:0. Any thread.
#pragma once

namespace torch_xla {

bool spmd_enabled();
// For the rest of the process: values already spread over devices cannot be brought back.
void enable_spmd();

}  // namespace torch_xla
