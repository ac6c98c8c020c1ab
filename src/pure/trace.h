// Running a function once to learn its computation.
#pragma once

#include "pure/entry.h"

#include <functional>

namespace torch_xla {

// Runs the callee on the arguments inside a scope of its own; nothing outside changes, whether it
// returns or throws. Without locks. Throws what the function throws, and refuses, with the place in
// the user's program, what a later call could not repeat.
std::shared_ptr<PureEntry> trace_function(const std::string& name,
                                          const std::shared_ptr<PureCallee>& callee,
                                          const Tensors& arguments);

// Called when a trace's tensors are still alive after it: the front end frees what only its garbage
// collector can. Set once.
void set_garbage_collector(void (*collect)());
// A tensor that `wanted` accepts and anybody but the C++ side holds, or an undefined one: the front
// end knows. Set once; without one whatever is alive is held.
using HeldFinder = at::Tensor (*)(const std::function<bool(const at::Tensor&)>& wanted);
void set_held_finder(HeldFinder find_held);
// Whether anybody but the C++ side holds the tensor. Set once; without one all are held.
void set_held_check(bool (*is_held)(const at::Tensor& tensor));

}  // namespace torch_xla
