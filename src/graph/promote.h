// Numbers that change between runs become inputs of the program instead of recompiling it.
// A Structure is every program compiled for one graph structure. Thread-safe.
#pragma once

#include "ir/graph.h"
#include "lower/graph_lowering.h"
#include "program/program.h"

#include <mutex>

namespace torch_xla {

struct Variant {
  ProgramPtr program;
  NumberPlacement placement;
  std::vector<Number> literals;  // per number; promoted ones are not compared
  std::vector<bool> pinned;
};
using VariantPtr = std::shared_ptr<const Variant>;

class Structure {
 public:
  // The program for these numbers, compiled (by one thread at a time) on a miss: literals first,
  // then with every number that has been seen to differ as an input. `name` is the graph's in
  // explanations and errors: "step_fn", or "sync at train.py:42" where no name was given. `missed`,
  // if given, tells whether there was a miss.
  VariantPtr find_or_compile(const Graph& graph, const std::string& name, bool* missed = nullptr);

 private:
  VariantPtr find(const std::vector<Number>& numbers) const;
  VariantPtr compile(const Graph& graph, const std::string& name) const;

  std::mutex mutex_;
  std::vector<VariantPtr> variants_;
};

// The values of promoted numbers, packed as the program expects them.
struct PackedNumbers {
  std::vector<double> doubles;
  std::vector<int64_t> integers;
};
PackedNumbers pack_numbers(const std::vector<Number>& numbers, const NumberPlacement& placement);

}  // namespace torch_xla
