#include "lower/late_reads.h"

#include "lower/table.h"

#include <algorithm>
#include <numeric>

namespace torch_xla {

namespace {

class Search {
 public:
  explicit Search(const Graph& graph) : graph_(graph), seen_(graph.nodes.size(), 0) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (GraphValue operand : graph_.operands_of(n)) {
        if (operand.producer < 0) {
          readers_[operand.index].push_back(n);
        }
      }
    }
  }

  LateReads run() {
    for (size_t i = 0; i < graph_.donated.size(); ++i) {
      if (graph_.donated[i] >= 0 && graph_.outputs[i].producer >= 0) {
        wait_for_readers(static_cast<uint32_t>(graph_.donated[i]),
                         static_cast<size_t>(graph_.outputs[i].producer));
      }
    }
    LateReads result{std::move(waits_), {}};
    result.order = ordered(result.waits);
    if (result.order.empty()) {
      result.waits.clear();
      result.order.resize(graph_.nodes.size());
      std::iota(result.order.begin(), result.order.end(), size_t{0});
    }
    return result;
  }

 private:
  // Whether node `of` needs node `n`, or is it. Nodes are in topological order.
  bool needs(size_t of, size_t n) {
    ++search_;
    std::vector<size_t> open{of};
    while (!open.empty()) {
      const size_t at = open.back();
      open.pop_back();
      if (at == n) {
        return true;
      }
      for (GraphValue operand : graph_.operands_of(at)) {
        const auto producer = static_cast<size_t>(operand.producer);
        if (operand.producer >= 0 && producer >= n && seen_[producer] != search_) {
          seen_[producer] = search_;
          open.push_back(producer);
        }
      }
    }
    return false;
  }

  void wait_for_readers(uint32_t parameter, size_t update) {
    std::vector<size_t> late;
    for (size_t reader : readers_[parameter]) {
      if (needs(update, reader)) {
        continue;
      }
      if (is_elementwise(*graph_.nodes[reader].node->signature)) {
        return;  // to wait for it would cost what the copy does
      }
      late.push_back(reader);
    }
    const std::optional<GraphValue> gradient =
        late.empty() ? std::nullopt : gradient_of(update, late);
    if (!gradient) {
      return;
    }
    Wait& wait = waits_[static_cast<size_t>(gradient->producer)];
    if (wait.reads.empty()) {
      wait.output = gradient->index;
    } else if (wait.output != gradient->index) {
      return;
    }
    for (size_t reader : late) {
      wait.reads.push_back({static_cast<int32_t>(reader), 0});
    }
  }

  // What the update is made of, element by element, that none of the readers needs.
  std::optional<GraphValue> gradient_of(size_t update, const std::vector<size_t>& readers) {
    std::vector<GraphValue> open{{static_cast<int32_t>(update), 0}};
    std::vector<bool> met(graph_.nodes.size(), false);
    while (!open.empty()) {
      const GraphValue value = open.back();
      const auto n = static_cast<size_t>(value.producer);
      open.pop_back();
      if (!is_elementwise(*graph_.nodes[n].node->signature)) {
        if (std::none_of(readers.begin(), readers.end(),
                         [&](size_t reader) { return needs(reader, n); })) {
          return value;
        }
        continue;
      }
      for (GraphValue operand : graph_.operands_of(n)) {
        if (operand.producer >= 0 && !met[static_cast<size_t>(operand.producer)]) {
          met[static_cast<size_t>(operand.producer)] = true;
          open.push_back(operand);
        }
      }
    }
    return std::nullopt;
  }

  // Empty: there is a circle.
  std::vector<size_t> ordered(const std::map<size_t, Wait>& waits) const {
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> state(graph_.nodes.size(), kNew);
    std::vector<size_t> order, open;
    const auto visit = [&](GraphValue needed) {
      if (needed.producer >= 0 && state[needed.producer] != kDone) {
        open.push_back(static_cast<size_t>(needed.producer));
      }
    };
    for (size_t root = 0; root < graph_.nodes.size(); ++root) {
      open.push_back(root);
      while (!open.empty()) {
        const size_t n = open.back();
        if (state[n] != kNew) {
          open.pop_back();
          if (state[n] == kOpen) {
            state[n] = kDone;
            order.push_back(n);
          }
          continue;
        }
        state[n] = kOpen;
        const size_t before = open.size();
        for (GraphValue operand : graph_.operands_of(n)) {
          visit(operand);
        }
        if (auto wait = waits.find(n); wait != waits.end()) {
          for (GraphValue read : wait->second.reads) {
            visit(read);
          }
        }
        const bool circle = std::any_of(open.begin() + static_cast<std::ptrdiff_t>(before),
                                        open.end(), [&](size_t m) { return state[m] == kOpen; });
        if (circle) {
          return {};
        }
      }
    }
    return order;
  }

  const Graph& graph_;
  std::map<uint32_t, std::vector<size_t>> readers_;  // of each input
  std::map<size_t, Wait> waits_;
  std::vector<uint64_t> seen_;  // by which search
  uint64_t search_ = 0;
};

}  // namespace

LateReads find_late_reads(const Graph& graph) { return Search(graph).run(); }

}  // namespace torch_xla
