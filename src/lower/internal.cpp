#include "lower/internal.h"

#include "sharding/sharding.h"

namespace torch_xla {

void lower_write(LowerContext& c) {
  c.set_frame(0, write_window(c.b, c.frame(0), c.place(0), c.read(1), c.output(0).frame));
}

void lower_zeros(LowerContext& c) { c.set_frame(0, c.b.full(0, c.output(0).frame)); }

void lower_mark_sharding(LowerContext& c) {
  Val x = c.frame(0);
  c.set_frame(0, c.b.sharding_call("Sharding", x, x.type(), c.text(1)));
}

void lower_to_shard(LowerContext& c) {
  Val x = c.frame(0);
  Val placed = c.b.sharding_call("Sharding", x, x.type(), c.text(1));
  c.set_frame(0, c.b.sharding_call("SPMDFullToShardShape", placed, c.output(0).frame,
                                   Sharding::manual()->text()));
}

void lower_from_shard(LowerContext& c) {
  Val x = c.frame(0);
  Val placed = c.b.sharding_call("Sharding", x, x.type(), Sharding::manual()->text());
  c.set_frame(0, c.b.sharding_call("SPMDShardToFullShape", placed, c.output(0).frame, c.text(1)));
}

void lower_read(LowerContext& c) { c.set(0, c.read(0)); }

}  // namespace torch_xla
