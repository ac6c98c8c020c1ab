// Maximum flow and minimum cut (Dinic's algorithm) on a directed graph with integer capacities.
#pragma once

#include <cstdint>
#include <vector>

namespace torch_xla {

class MaxFlow {
 public:
  static constexpr int64_t kInfinite = int64_t{1} << 60;

  explicit MaxFlow(int32_t vertices) : first_(vertices, -1) {}
  void add_edge(int32_t from, int32_t to, int64_t capacity);
  int64_t run(int32_t source, int32_t sink);
  // After run(): on the source's side of the minimum cut?
  bool on_source_side(int32_t vertex) const { return level_[vertex] >= 0; }

 private:
  struct Edge {
    int32_t to;
    int32_t next;
    int64_t capacity;
  };
  bool find_levels(int32_t source, int32_t sink);
  int64_t push(int32_t source, int32_t sink);

  std::vector<Edge> edges_;     // edge i and its reverse i ^ 1
  std::vector<int32_t> first_;  // per vertex: its first edge
  std::vector<int32_t> level_;
  std::vector<int32_t> next_;  // per vertex: the first edge not yet exhausted
};

}  // namespace torch_xla
