#include "graph/edges.h"

#include "graph/collect.h"
#include "graph/partition.h"

#include <algorithm>
#include <set>
#include <utility>

namespace torch_xla {

namespace {

bool is_small_whole(const TensorType& type) {
  constexpr int64_t kSmall = int64_t{1} << 16;  // bytes
  return c10::isIntegralType(type.dtype, /*includeBool=*/true) && type.nbytes() <= kSmall;
}

class Cutter {
 public:
  explicit Cutter(const Graph& graph) : graph_(graph), part_of_(graph.nodes.size(), kCore) {}

  std::vector<Piece> run() {
    const auto is_given = [](GraphValue output) { return output.producer < 0; };
    if (std::any_of(graph_.outputs.begin(), graph_.outputs.end(), is_given)) {
      return {};
    }
    find_parts();
    const auto cores = std::count(part_of_.begin(), part_of_.end(), kCore);
    if (cores == static_cast<std::ptrdiff_t>(part_of_.size())) {
      return {};
    }
    std::vector<Piece> pieces;
    for (Part part : {kFirst, kCore, kLast}) {
      if (std::find(part_of_.begin(), part_of_.end(), part) != part_of_.end()) {
        pieces.push_back(piece(part));
      }
    }
    return pieces;
  }

 private:
  enum Part : uint8_t { kFirst, kCore, kLast };

  GraphValue operand(size_t node, size_t i) const { return graph_.operands_of(node)[i]; }
  size_t operand_count(size_t node) const { return graph_.nodes[node].node->operands.size(); }

  bool is_bookkeeping(size_t node) const {
    const Signature& signature = *graph_.nodes[node].node->signature;
    bool result = !signature.random && signature.tier != Tier::Call;
    for (const OutputSpec& output : signature.outputs) {
      result = result && is_small_whole(output.frame);
    }
    for (size_t i = 0; result && i < operand_count(node); ++i) {
      result = is_small_whole(graph_.type(operand(node, i)));
    }
    return result;
  }

  void find_parts() {
    for (size_t n = 0; n < part_of_.size(); ++n) {
      bool first = is_bookkeeping(n);
      for (size_t i = 0; first && i < operand_count(n); ++i) {
        const GraphValue value = operand(n, i);
        first = value.producer < 0 || part_of_[value.producer] == kFirst;
      }
      part_of_[n] = first ? kFirst : kCore;
    }
    std::vector<bool> needed(part_of_.size(), false);  // by the core
    for (size_t n = part_of_.size(); n-- > 0;) {
      if (part_of_[n] == kCore && !needed[n] && is_bookkeeping(n)) {
        part_of_[n] = kLast;
        continue;
      }
      for (size_t i = 0; i < operand_count(n); ++i) {
        if (const GraphValue value = operand(n, i); value.producer >= 0) {
          needed[value.producer] = true;
        }
      }
    }
  }

  bool is_in(GraphValue value, Part part) const {
    return value.producer >= 0 && part_of_[value.producer] == part;
  }

  Piece piece(Part part) const {
    Piece piece;
    piece.edge = part != kCore;
    std::set<std::pair<int32_t, uint32_t>> seen;  // a piece's inputs are no outputs of it
    auto add = [&seen](std::vector<GraphValue>& values, GraphValue value) {
      if (seen.emplace(value.producer, value.index).second) {
        values.push_back(value);
      }
    };
    for (size_t n = 0; n < part_of_.size(); ++n) {
      for (size_t i = 0; i < operand_count(n); ++i) {
        const GraphValue value = operand(n, i);
        if (part_of_[n] == part && !is_in(value, part)) {
          add(piece.inputs, value);
        } else if (part_of_[n] != part && is_in(value, part)) {
          add(piece.outputs, value);
        }
      }
    }
    for (GraphValue output : graph_.outputs) {
      if (is_in(output, part)) {
        add(piece.outputs, output);
      }
    }
    piece.graph = extract(graph_, piece.inputs, piece.outputs);
    donate(piece, part);
    finish_graph(piece.graph);
    return piece;
  }

  // As in the whole, what no other piece reads or replaces: edges are small whole numbers.
  void donate(Piece& piece, Part part) const {
    for (size_t i = 0; i < piece.inputs.size(); ++i) {
      const GraphValue input = piece.inputs[i];
      const auto taker = input.producer < 0 ? std::find(graph_.donated.begin(),
                                                        graph_.donated.end(), int32_t(input.index))
                                            : graph_.donated.end();
      if (part != kCore || taker == graph_.donated.end() || is_small_whole(graph_.type(input))) {
        continue;
      }
      const GraphValue output = graph_.outputs[taker - graph_.donated.begin()];
      for (size_t o = 0; o < piece.outputs.size(); ++o) {
        const GraphValue made = piece.outputs[o];
        if (made.producer == output.producer && made.index == output.index) {
          piece.graph.donated[o] = static_cast<int32_t>(i);
        }
      }
    }
  }

  const Graph& graph_;
  std::vector<Part> part_of_;  // per node
};

}  // namespace

std::vector<Piece> cut_edges(const Graph& graph) { return Cutter(graph).run(); }

}  // namespace torch_xla
