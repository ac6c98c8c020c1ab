// Several processes whose devices run one program: what their clients tell each other while they
// start goes through a store that all of them reach. Set before the client starts; any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace torch_xla::pjrt {

struct Processes {
  int index = 0;
  int count = 1;
  // Called from threads of the plugin. `get` blocks until there is a value, `timeout_ms` at most.
  std::function<std::string(const std::string& key, int timeout_ms)> get;
  std::function<std::optional<std::string>(const std::string& key)> try_get;
  std::function<void(const std::string& key, const std::string& value)> put;
};

// Throws if the client has started.
void set_processes(Processes processes);
const Processes& processes();

}  // namespace torch_xla::pjrt
