// One direction of a recurrent layer, recorded as one operation. Any thread.
#pragma once

#include "host_ops/recurrent_layer.h"

#include <tuple>

namespace torch_xla {

// Its output, and the last hidden state and, of an LSTM, cell. Can be differentiated, any number of
// times.
std::tuple<at::Tensor, at::Tensor, at::Tensor> recurrent_layer(const RecurrentLayer& layer);

}  // namespace torch_xla
