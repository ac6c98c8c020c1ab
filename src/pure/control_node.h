// One node of control flow: a computation that runs as values say, or again and again.
#pragma once

#include "pure/entry.h"

#include <functional>

namespace torch_xla {

// The function, unless it changes its arguments in place: that is refused.
EntryPtr unchanging(EntryPtr function);

// Traces what a node runs, without gradients: `run` gets tensors like `examples` and gives tensors
// that are the whole of storages of their own (see owned()). Without locks.
EntryPtr trace_part(const std::string& name, const Tensors& examples,
                    const std::function<Tensors(const Tensors&)>& run);

// A dense tensor without a value, to trace with.
at::Tensor make_example(const at::Tensor& like, c10::IntArrayRef sizes, bool requires_grad);

// The same values in storages of their own, without copying those that fill theirs.
Tensors owned(const Tensors& tensors);

// The tensor, or a copy, that is dense and the whole of its storage. Differentiable.
at::Tensor dense(const at::Tensor& tensor);

// Of tensors that were given to `what`, a name in errors; all on one device.
Tensors all_dense(const Tensors& tensors, const char* what);

// Records the node; in eager mode it is run here. `parts`: what trace_part() made, two for If.
// `arguments`: dense and whole; If: the predicate, then the parts' arguments; loops: those of one
// iteration, but stacks for slices. What the parts read besides, they read from outside; what they
// write there is written after the last iteration, if `commit`. Without locks and the GIL.
Tensors run_control(Control control, const std::vector<EntryPtr>& parts, const Tensors& arguments,
                    bool commit = true);

}  // namespace torch_xla
