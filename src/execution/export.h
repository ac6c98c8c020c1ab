// Pending values as a StableHLO module for others: a function of tensors that the caller names.
#pragma once

#include "trace/tensor.h"

#include <string>
#include <unordered_set>
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

// Between `begin` and `end` the calling thread records a program for others. Operators without a
// lowering are then decomposed, though a kernel of this process could be called, and reading a
// value that depends on the inputs throws: it would be a constant of the program.
class ExportScope {
 public:
  explicit ExportScope(const std::vector<at::Tensor>& inputs);
  void begin();
  void end();

  static bool active();
  // Throws if one of these values depends on the inputs of the thread's scope.
  static void refuse_to_read(const std::vector<StatePtr>& states);

 private:
  std::unordered_set<const Node*> inputs_;
  const ExportScope* outer_ = nullptr;
};

// Whether what the calling thread records is a function being traced or a program being exported,
// of which nothing may run.
bool is_traced_or_exported();

}  // namespace torch_xla
