// Whether operations run as they are called, and how. One flag per process; any thread may flip it
// at any time: an operation is recorded or run by what the flag was when it began.
#pragma once

namespace torch_xla::eager {

enum class Mode {
  Off,       // recorded, run by the next sync
  Host,      // PyTorch's CPU kernel, on the storages' own memory
  Programs,  // recorded and run at once, one cached program per kind of call
};

void set_enabled(bool enabled);
bool flag();  // what was set
// False inside a compile region or the trace of a pure function, whatever was set.
bool enabled();

// For the operation that begins now. May start the client.
Mode mode();

}  // namespace torch_xla::eager
