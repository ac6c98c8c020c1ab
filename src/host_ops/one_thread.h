// While it lives, kernels on the calling thread have one thread of OpenMP's: them. A thread that
// uses more has a team of its own for good, and libgomp lets waiting threads spin only while all
// teams together fit the processors.
#pragma once

namespace torch_xla {

class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = 1;
};

// While it lives, kernels on the calling thread may have a team, which is dissolved at the end. For
// a thread that is not the program's own, and calls that are worth starting threads.
class PassingTeam {
 public:
  PassingTeam() = default;
  ~PassingTeam();
  PassingTeam(const PassingTeam&) = delete;
  PassingTeam& operator=(const PassingTeam&) = delete;
};

}  // namespace torch_xla
