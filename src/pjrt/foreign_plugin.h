// PJRT_DEVICE=FOREIGN, for tests: the CPU plugin, made to behave as devices that are not the host.
// Its memory cannot be addressed, it knows no f64, it numbers its devices otherwise than from 0 in
// their order, it fails late (a launch succeeds, its results do not become ready and what was
// donated is gone), it calls no functions of this process and counts no memory. It has a profiler,
// which records that it did.
#pragma once

#include "pjrt/api.h"

#include <string>

namespace torch_xla::pjrt {

// `path`: of the CPU plugin. Once in a process.
Api load_foreign(const std::string& path);

}  // namespace torch_xla::pjrt
