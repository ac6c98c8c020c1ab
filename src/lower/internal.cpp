#include "lower/internal.h"

#include "lower/window.h"

namespace torch_xla {

void lower_write(LowerContext& c) {
  const Signature& s = c.signature();
  Val update = read_window(c.b, c.frame(1), s.operands[1]);
  c.set_frame(0, write_window(c.b, c.frame(0), s.operands[0], update, s.outputs[0].frame));
}

void lower_zeros(LowerContext& c) { c.set_frame(0, c.b.full(0, c.output(0).frame)); }

void lower_read(LowerContext& c) {
  c.set(0, read_window(c.b, c.frame(0), c.signature().operands[0]));
}

}  // namespace torch_xla
