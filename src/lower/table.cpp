#include "lower/table.h"

#include <c10/util/accumulate.h>

#include <algorithm>

namespace torch_xla {

namespace {

// Families of element-wise operators and changes of shape.
void mark_cheap(LowerTable& table) {
  for (auto& [name, entry] : table) {
    entry.flags |= kCheap;
  }
}

}  // namespace

const LowerTable& lower_table() {
  static const LowerTable* table = [] {
    auto* entries = new LowerTable;
    register_elementwise(*entries);
    register_activation(*entries);
    register_shape(*entries);
    register_factory(*entries);
    mark_cheap(*entries);
    register_reduce(*entries);
    register_softmax(*entries);
    register_matmul(*entries);
    register_attention(*entries);
    register_index(*entries);
    register_sort(*entries);
    register_norm(*entries);
    register_convolution(*entries);
    register_random(*entries);
    register_pool(*entries);
    register_linalg(*entries);
    register_optimizer(*entries);
    register_own(*entries);
    return entries;
  }();
  return *table;
}

namespace {

bool has_one_of(const Signature& signature, uint32_t flags) {
  const auto entry = lower_table().find(signature.op);
  return signature.tier == Tier::Direct && !signature.random && entry != lower_table().end() &&
         (entry->second.flags & flags) != 0;
}

}  // namespace

bool is_worth_a_call(const LowerContext& c) {
  constexpr int64_t kElements = 1 << 12;
  const int64_t given = c10::multiply_integers(c.signature().operands.at(0).sizes);
  return std::max(given, c.output(0).frame.numel()) >= kElements;
}

bool is_elementwise(const Signature& signature) { return has_one_of(signature, kElementwise); }

bool makes_elements(const Signature& signature) {
  return has_one_of(signature, kElementwise | kNormalizes);
}

}  // namespace torch_xla
