#include "lower/repeated_work.h"

#include "lower/table.h"

#include <algorithm>

namespace torch_xla {

namespace {

// A few numbers without order, of which more than `kMany` are as good as `kMany`.
class FewNumbers {
 public:
  static constexpr int64_t kMany = 4;

  void add(int64_t number) {
    const auto end = numbers_ + size_;
    if (size_ < kMany && std::find(numbers_, end, number) == end) {
      numbers_[size_++] = number;
    }
  }
  void add(const FewNumbers& others) {
    std::for_each(others.numbers_, others.numbers_ + others.size_, [&](int64_t n) { add(n); });
  }
  int64_t size() const { return size_; }

 private:
  int64_t numbers_[kMany] = {};
  int64_t size_ = 0;
};

class Search {
 public:
  explicit Search(const Graph& graph)
      : graph_(graph),
        fuses_(graph.nodes.size()),
        readers_(graph.nodes.size()),
        loops_(graph.nodes.size()),
        arrays_(graph.nodes.size()) {}

  std::vector<bool> run() {
    for (size_t n = 0; n < fuses_.size(); ++n) {
      fuses_[n] = makes_elements(*graph_.nodes[n].node->signature);
    }
    find_loops();
    std::vector<bool> kept(fuses_.size(), false);
    for (size_t n = 0; n < fuses_.size(); ++n) {
      if (!fuses_[n]) {
        continue;
      }
      find_arrays(n, kept);
      // Each loop reads all arrays, or one reads them and writes the value, which all read.
      const int64_t loops = loops_[n].size(), arrays = arrays_[n].size();
      kept[n] = readers_[n].size() > 1 && loops * arrays > arrays + 1 + loops;
    }
    return kept;
  }

 private:
  bool is_part_of_loops(GraphValue value) const {
    return value.producer >= 0 && value.index == 0 && fuses_[static_cast<size_t>(value.producer)];
  }

  // Which loops a value becomes a part of: one that writes what is read from memory, by a product,
  // say, and those of sums.
  void find_loops() {
    for (GraphValue output : graph_.outputs) {
      if (is_part_of_loops(output)) {
        loops_[static_cast<size_t>(output.producer)].add(written(output));
      }
    }
    for (size_t n = fuses_.size(); n-- > 0;) {
      const bool sums = graph_.nodes[n].node->signature->outputs.size() > 1;  // a norm
      for (GraphValue operand : graph_.operands_of(n)) {
        if (!is_part_of_loops(operand)) {
          continue;
        }
        const auto producer = static_cast<size_t>(operand.producer);
        readers_[producer].add(static_cast<int64_t>(n));
        if (!fuses_[n]) {
          loops_[producer].add(written(operand));
          continue;
        }
        loops_[producer].add(loops_[n]);
        if (sums) {
          loops_[producer].add(static_cast<int64_t>(n));
        }
      }
    }
  }

  static int64_t written(GraphValue value) { return -1 - static_cast<int64_t>(value.producer); }

  // What those loops read for it: windows of its size.
  void find_arrays(size_t n, const std::vector<bool>& kept) {
    const Signature& signature = *graph_.nodes[n].node->signature;
    const int64_t size = signature.outputs[0].frame.numel();
    for (size_t i = 0; i < signature.operands.size(); ++i) {
      const GraphValue operand = graph_.operands_of(n)[i];
      const Window& window = signature.operands[i];
      if (window.numel() != size) {
        continue;  // less than the loops write, or a number
      }
      const bool whole = graph_.type(operand).numel() == size;
      if (whole && is_part_of_loops(operand) && !kept[static_cast<size_t>(operand.producer)]) {
        arrays_[n].add(arrays_[static_cast<size_t>(operand.producer)]);
      } else {
        arrays_[n].add(place_of(operand, window));
      }
    }
  }

  // The same number for the same elements of the same array.
  static int64_t place_of(GraphValue array, const Window& window) {
    constexpr int64_t kPrime = 1000003;
    return (array.producer * kPrime + array.index) * kPrime + window.offset;
  }

  const Graph& graph_;
  std::vector<bool> fuses_;
  std::vector<FewNumbers> readers_, loops_, arrays_;
};

}  // namespace

std::vector<bool> worth_keeping(const Graph& graph) { return Search(graph).run(); }

}  // namespace torch_xla
