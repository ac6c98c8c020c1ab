// What to do for one kind of call: made on the first such call, by running the operator on meta
// tensors (so that PyTorch's own checks and messages apply), then reused while such calls come.
// Immutable.
#pragma once

#include "record/call.h"

namespace torch_xla {

struct CallPlan {
  uint64_t op = 0;  // OpInfo::serial
  std::vector<int64_t> key;

  // False: the operator cannot be recorded (sizes depend on values, or no host call is possible);
  // it runs on the CPU at once.
  bool recorded = true;
  // It writes through an expanded dimension, one element several times: PyTorch's kernel refuses
  // that or knows what it means, on the values' own memory.
  bool in_memory = false;
  SignaturePtr signature;  // of the functional operator

  // Per xla tensor of the call: is it an operand? (Shape-only and out= arguments are not.)
  std::vector<bool> is_operand;

  // How the functional operator's flat results map to what the caller gets.
  struct Result {
    int output = -1;    // of the signature; -1: undefined
    int argument = -1;  // written into this argument of the operator...
    int element = -1;   // ...or this element of it, if a list; argument -1: a new tensor
  };
  std::vector<Result> results;
  // Per return of the operator: number of list elements, or -1 for a plain tensor.
  std::vector<int> return_lengths;
};

using CallPlanPtr = std::shared_ptr<const CallPlan>;

// The plan for this call, known or made now. Throws the operator's own errors.
CallPlanPtr find_plan(const OpInfo& info, const Call& call, c10::ArrayRef<c10::IValue> arguments);

// The process keeps at most so many plans, of which at least half are those used last.
constexpr size_t kMostPlans = size_t{1} << 14;
size_t plan_count();

}  // namespace torch_xla
