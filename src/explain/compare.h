// Why a graph is not the one compiled before. Pure functions over summaries; any thread.
#pragma once

#include "explain/summary.h"

namespace torch_xla::explain {

struct Explanation {
  std::string cause;   // a word to count by: "shape", "new operation", ...
  std::string reason;  // what changed, in one sentence
  std::string advice;  // what to do about it; may be empty
};

// Which operation of one graph is which of the other: the same operator on the same line, in order.
struct Alignment {
  std::vector<int32_t> before_of;  // per operation of `now`; -1: new
  std::vector<int32_t> now_of;     // per operation of `before`; -1: gone
};
Alignment align(const GraphSummary& before, const GraphSummary& now);

// The first difference that explains the most. `region`: the graph is of a named region or
// function, not of whatever was pending at a line.
Explanation compare(const GraphSummary& before, const GraphSummary& now, bool region);

}  // namespace torch_xla::explain
