// Operator name -> lowering function. Filled once, on first use; read-only afterwards.
#pragma once

#include "lower/context.h"

#include <string>
#include <unordered_map>

namespace torch_xla {

// How an operator's arguments are taken when it is recorded.
enum LowerFlags : uint32_t {
  kNone = 0,
  // Only sizes and dtype of argument 0 matter (copy, fill, zero, uniform, ...): its value is not
  // an operand.
  kShapeOnlySelf = 1,
  // Numbers are part of the signature (their value decides shapes or checks): arange, pow, ...
  // Some may move all the same (record/moving.h).
  kStaticNumbers = 2,
  // Cheaper to compute again than to keep for a gradient.
  kCheap = 4,
  // Where a slice begins and ends are numbers, counted from 0: arguments `index` or `start` and the
  // one behind it. Its length follows from the sizes.
  kSlice = 8,
  // Each element of the result is made of those at its place in the operands, which are broadcast.
  kElementwise = 16,
  // So is result 0, and of sums over the operands.
  kNormalizes = 32,
};

struct LowerEntry {
  LowerFunction function = nullptr;
  uint32_t flags = kNone;
};

// Where PyTorch's kernel was measured faster than any program: a call of it, and `elsewhere` on
// platforms that cannot.
template <LowerFunction elsewhere>
void host_or(LowerContext& c) {
  if (c.prefers_host()) {
    c.call_host();
  } else {
    elsewhere(c);
  }
}

// Whether it has so many elements that a call costs little beside what it computes.
bool is_worth_a_call(const LowerContext& c);

template <LowerFunction elsewhere>
void large_on_host(LowerContext& c) {
  is_worth_a_call(c) ? host_or<elsewhere>(c) : elsewhere(c);
}

template <LowerFunction elsewhere>
void large_floats_on_host(LowerContext& c) {
  c10::isFloatingType(c.output(0).dtype) ? large_on_host<elsewhere>(c) : elsewhere(c);
}

using LowerTable = std::unordered_map<std::string, LowerEntry>;

// Keys are full names of functional overloads: "aten::add.Tensor", "aten::_softmax".
const LowerTable& lower_table();
// Whether it is lowered as an operation of elements, of which XLA makes a part of its users' loops.
bool is_elementwise(const Signature& signature);
// Whether that holds for result 0, whatever else the operation computes.
bool makes_elements(const Signature& signature);

// One per operator family, each in the file of that name.
void register_elementwise(LowerTable& table);  // unary, binary, compare, where, clamp, casts
void register_activation(LowerTable& table);   // activations and losses, forward and backward
void register_reduce(LowerTable& table);       // sum, mean, var, amax, argmax, cumsum
void register_softmax(LowerTable& table);      // softmax, log_softmax, their gradients
void register_matmul(LowerTable& table);       // mm, addmm, bmm, baddbmm, dot, mv
void register_shape(LowerTable& table);        // cat, stack, repeat, flip, roll, constant_pad_nd
void register_factory(LowerTable& table);      // full, arange, eye, tril, linspace, fill, copy
void register_index(LowerTable& table);        // index, index_put, gather, scatter, embedding
void register_sort(LowerTable& table);         // sort, topk, ...
void register_norm(LowerTable& table);         // batch, layer and group norm
void register_convolution(LowerTable& table);  // convolution and its gradient
void register_pool(LowerTable& table);         // pooling, upsampling
void register_random(LowerTable& table);       // uniform, normal, dropout, randperm
void register_linalg(LowerTable& table);       // cholesky, triangular_solve, fft
void register_optimizer(LowerTable& table);    // fused Adam, AdamW, SGD
void register_attention(LowerTable& table);    // flash attention and its gradient
void register_own(LowerTable& table);          // torch_xla::stablehlo, optimization_barrier

}  // namespace torch_xla
