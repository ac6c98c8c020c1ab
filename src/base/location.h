// Where in the user's program something was recorded. The front end (Python, or a C++ program)
// installs a provider; the core only passes small ids around.
#pragma once

#include <cstdint>
#include <string>

namespace torch_xla {

struct Location {
  std::string file;  // empty: unknown
  int line = 0;
  std::string scope;  // the function's qualified name: "Decoder.forward"

  std::string str() const;  // "train.py:42"
};

using LocationProvider = uint32_t (*)();

// Called once, by the front end. The provider runs on the recording thread, without any lock held.
void set_location_provider(LocationProvider provider);

// Id of the place the calling thread is recording from; 0 when unknown.
uint32_t current_location();

// What current_location() last gave this thread. Takes no lock and no GIL.
uint32_t last_location();

// A name for what the calling thread records from now on, until the matching end_region(): put
// before the scopes of its locations, "my_block/Decoder.forward".
void begin_region(const std::string& name);
void end_region();

// Thread-safe; the returned reference is valid for the life of the process.
uint32_t intern_location(Location location);
const Location& location_of(uint32_t id);

}  // namespace torch_xla
