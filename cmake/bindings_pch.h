// Precompiled for python/bindings: pybind11 with PyTorch's casters.
#include <torch/csrc/utils/pybind.h>
