// Pending values as a StableHLO module for others: a function of tensors that the caller names.
#pragma once

#include "trace/tensor.h"

#include <string>
#include <vector>

namespace torch_xla {

struct ExportedGraph {
  std::string text;
  std::vector<at::Tensor> captured;  // on the CPU: what it also reads, parameters behind `inputs`
  std::vector<std::string> host_operators;  // "aten::x": in the text as calls of this process
};

// Nothing is compiled or run, but what `inputs` still wait for. `outputs` and `inputs` are whole
// storages; inputs that are not read are parameters, too.
ExportedGraph export_graph(const std::vector<at::Tensor>& outputs,
                           const std::vector<at::Tensor>& inputs, const std::string& name);

}  // namespace torch_xla
