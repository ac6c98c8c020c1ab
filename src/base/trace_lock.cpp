#include "base/trace_lock.h"

namespace torch_xla {

constinit Mutex trace_mutex;

}  // namespace torch_xla
