#include "graph/max_flow.h"

#include <algorithm>

namespace torch_xla {

void MaxFlow::add_edge(int32_t from, int32_t to, int64_t capacity) {
  edges_.push_back({to, first_[from], capacity});
  first_[from] = static_cast<int32_t>(edges_.size()) - 1;
  edges_.push_back({from, first_[to], 0});
  first_[to] = static_cast<int32_t>(edges_.size()) - 1;
}

bool MaxFlow::find_levels(int32_t source, int32_t sink) {
  level_.assign(first_.size(), -1);
  level_[source] = 0;
  std::vector<int32_t> queue{source};
  for (size_t head = 0; head < queue.size(); ++head) {
    int32_t vertex = queue[head];
    for (int32_t e = first_[vertex]; e >= 0; e = edges_[e].next) {
      if (edges_[e].capacity > 0 && level_[edges_[e].to] < 0) {
        level_[edges_[e].to] = level_[vertex] + 1;
        queue.push_back(edges_[e].to);
      }
    }
  }
  return level_[sink] >= 0;
}

// One augmenting path along rising levels, found without recursion; 0 when there is none left.
int64_t MaxFlow::push(int32_t source, int32_t sink) {
  std::vector<int32_t> path;  // edges
  int32_t vertex = source;
  while (vertex != sink) {
    int32_t& e = next_[vertex];
    while (e >= 0 &&
           (edges_[e].capacity == 0 || level_[edges_[e].to] != level_[vertex] + 1)) {
      e = edges_[e].next;
    }
    if (e >= 0) {
      path.push_back(e);
      vertex = edges_[e].to;
      continue;
    }
    if (path.empty()) {
      return 0;
    }
    int32_t back = path.back();
    path.pop_back();
    vertex = edges_[back ^ 1].to;
    next_[vertex] = edges_[back].next;
  }
  int64_t flow = kInfinite;
  for (int32_t e : path) {
    flow = std::min(flow, edges_[e].capacity);
  }
  for (int32_t e : path) {
    edges_[e].capacity -= flow;
    edges_[e ^ 1].capacity += flow;
  }
  return flow;
}

int64_t MaxFlow::run(int32_t source, int32_t sink) {
  int64_t total = 0;
  while (total < kInfinite && find_levels(source, sink)) {
    next_ = first_;
    while (int64_t flow = push(source, sink)) {
      total += flow;
    }
  }
  return total;
}

}  // namespace torch_xla
