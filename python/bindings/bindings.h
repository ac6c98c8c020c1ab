// The extension module torch_xla._XLAC, one file a feature. Bindings convert and forward; every
// call that may record, compile, run or wait releases the GIL.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace torch_xla {

using NoGil = pybind11::call_guard<pybind11::gil_scoped_release>;

void bind_device(pybind11::module& m);
void bind_cache(pybind11::module& m);
void bind_sync(pybind11::module& m);
void bind_random(pybind11::module& m);
void bind_metrics(pybind11::module& m);
void bind_decompose(pybind11::module& m);
void bind_explain(pybind11::module& m);
void bind_timeline(pybind11::module& m);
void bind_location(pybind11::module& m);
void bind_eager(pybind11::module& m);
void bind_pure(pybind11::module& m);
void bind_replay(pybind11::module& m);
void bind_control(pybind11::module& m);
void bind_dynamo(pybind11::module& m);
void bind_spmd(pybind11::module& m);
void bind_export(pybind11::module& m);
void bind_tensors(pybind11::module& m);

}  // namespace torch_xla
