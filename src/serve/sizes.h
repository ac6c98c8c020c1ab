// Dynamic sizes of an exported program: what torch_xla/_internal/stablehlo_sizes.py wrote. Plain
// data.
#pragma once

#include "serve/json.h"
#include "torch_xla/serve.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::serve {

// The symbols in sizes, and what they are in a run.
using Symbols = std::map<std::string, int64_t, std::less<>>;
using Shape = std::vector<int64_t>;

class Sizes {
 public:
  explicit Sizes(const Json& described);

  // The symbols where the parameters of the program have these shapes (an empty one where only the
  // program says it). Throws if the program was exported for others.
  Symbols symbols(const std::vector<Shape>& parameters) const;
  // All shapes with these symbols.
  std::vector<Shape> parameters(const Symbols& symbols) const;
  std::vector<Shape> results(const Symbols& symbols) const;

 private:
  struct Range {
    int64_t least, most;
  };
  using Expressions = std::vector<std::vector<std::string>>;

  std::map<std::string, Range, std::less<>> ranges_;
  Expressions parameters_, results_;
};

// The program for these sizes: the template with the values of its expressions.
std::string specialised(std::string_view text, const Symbols& symbols);

}  // namespace torch_xla::serve
