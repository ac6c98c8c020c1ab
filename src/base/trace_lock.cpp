#include "base/trace_lock.h"

namespace torch_xla {

constinit Mutex trace_mutex;
constinit std::atomic<pthread_t> TraceLock::holder_{0};

}  // namespace torch_xla
