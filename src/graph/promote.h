// Numbers that change between runs become inputs of the program instead of recompiling it.
// Stateless but for a table of the places whose numbers change. Thread-safe.
#pragma once

#include "ir/graph.h"
#include "lower/graph_lowering.h"
#include "program/program.h"

#include <memory>
#include <string>
#include <vector>

namespace torch_xla {

// A program for a graph whose numbers are these, or have these places as inputs.
struct Variant {
  ProgramPtr program;
  NumberPlacement placement;
  std::vector<Number> literals;  // per number; promoted ones are not compared
  std::vector<bool> pinned;
  bool may_fail = false;                 // after it was launched (LoweredModule)
  std::vector<SignaturePtr> signatures;  // of the kernels that it may call
};
using VariantPtr = std::shared_ptr<const Variant>;

// Whether the program computes the graph with these numbers.
bool fits(const Variant& variant, const std::vector<Number>& numbers);

// Numbers to promote in the next program of a structure that has these: those the nearest one
// promotes, those in which it differs, and those that changed where they were recorded.
std::vector<bool> choose_promoted(const std::vector<VariantPtr>& variants, const Graph& graph);

// Blocks. `name` is the graph's in errors; `awaited`: somebody waits, and is told if it takes long.
VariantPtr compile_variant(const Graph& graph, const std::string& name, std::vector<bool> promoted,
                           bool awaited);

// The values of promoted numbers, packed as the program expects them.
struct PackedNumbers {
  std::vector<double> doubles;
  std::vector<int64_t> integers;
};
PackedNumbers pack_numbers(const std::vector<Number>& numbers, const NumberPlacement& placement);

}  // namespace torch_xla
