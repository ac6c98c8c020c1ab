// Operations of our own, with no PyTorch operator behind them: moving between frames and windows.
// Their signatures are made by values/; op names start with "xla::".
#pragma once

#include "lower/context.h"

namespace torch_xla {

// xla::write(frame, update): operand 0's window is replaced by operand 1; output: the new frame.
void lower_write(LowerContext& c);
// xla::zeros(): a frame of zeros.
void lower_zeros(LowerContext& c);
// xla::mark_sharding(frame, str sharding): the frame, lying on the devices as said.
void lower_mark_sharding(LowerContext& c);
// xla::to_shard(frame, str sharding): each device's piece as a value of its own, and back.
void lower_to_shard(LowerContext& c);
void lower_from_shard(LowerContext& c);
// xla::read(frame): operand 0's window as a dense frame.
void lower_read(LowerContext& c);

}  // namespace torch_xla
