#include "pure/compare.h"

#include "base/location.h"
#include "explain/words.h"

namespace torch_xla {

namespace {

bool same(const Number& x, const Number& y) {
  return x.kind == y.kind && x.integer == y.integer && x.floating == y.floating;
}

std::string recorded_at(const Node& node) { return " at " + location_of(node.location).str(); }

std::string node_difference(const Node& known, const Node& fresh) {
  const Signature& before = *known.signature;
  const Signature& now = *fresh.signature;
  if (before.op != now.op) {
    return now.op + recorded_at(fresh) + " takes the place of " + before.op + recorded_at(known);
  }
  if (before.hash != now.hash) {
    return now.op + recorded_at(fresh) + " has other arguments or shapes than in the first trace";
  }
  for (size_t i = 0; i < known.numbers.size(); ++i) {
    if (!same(known.numbers[i], fresh.numbers[i])) {
      return "a number of " + now.op + recorded_at(fresh) + " was " +
             explain::number_text(known.numbers[i]) + " and is " +
             explain::number_text(fresh.numbers[i]) +
             " (a value that changes from call to call must be an argument or a tensor)";
    }
  }
  return "";
}

}  // namespace

std::string describe_difference(const PureEntry& known, const PureEntry& fresh) {
  const Graph& before = known.forward->computation->graph;
  const Graph& now = fresh.forward->computation->graph;
  for (size_t n = 0; n < std::min(before.nodes.size(), now.nodes.size()); ++n) {
    std::string difference = node_difference(*before.nodes[n].node, *now.nodes[n].node);
    if (!difference.empty()) {
      return difference;
    }
  }
  if (before.nodes.size() != now.nodes.size()) {
    bool more = now.nodes.size() > before.nodes.size();
    const Graph& longer = more ? now : before;
    const Node& node = *longer.nodes[std::min(before.nodes.size(), now.nodes.size())].node;
    return node.signature->op + recorded_at(node) + (more ? " is new" : " is missing");
  }
  if (known.forward->computation->hash != fresh.forward->computation->hash) {
    return "the same operators are connected in another way";
  }
  return "";
}

std::string describe_key_change(const Words& before, const Words& now) {
  if (before.size() > 1 && now.size() > 1 && before[1] != now[1]) {
    return "a switch of PyTorch changed (grad mode, autocast, default dtype, determinism)";
  }
  if (before == now) {
    return "a tensor that the function closes over changed its shape, dtype or requires_grad";
  }
  // Walks over the tensors as append_arguments wrote them.
  size_t i = 2;
  for (int64_t argument = 0; i < before.size() && i < now.size(); ++argument) {
    uint64_t word = now[i];
    size_t rank = (word >> 32) & 0xFFFF;
    bool contiguous = ((word >> 9) & 1) != 0;
    size_t length = 1 + rank + (contiguous ? 0 : rank) + (((word >> 10) & 1) != 0 ? 0 : 2);
    for (size_t k = 0; k < length && i + k < before.size() && i + k < now.size(); ++k) {
      if (before[i + k] == now[i + k]) {
        continue;
      }
      std::string which = "tensor argument " + std::to_string(argument);
      return k == 0 ? which + " changed its dtype, rank, layout or requires_grad"
                    : which + " had size " + std::to_string(before[i + k]) + ", now " +
                          std::to_string(now[i + k]) + ", in dimension " + std::to_string(k - 1);
    }
    i += length;
    while (i < now.size() && (now[i] >> 63) != 0) {
      ++i;
    }
  }
  return "the arguments changed";
}

}  // namespace torch_xla
