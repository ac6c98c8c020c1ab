// A set of numbers as ranges [begin, end), neighbours joined, that finds the smallest range which
// holds so many. Not thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace torch_xla::pjrt {

class Ranges {
 public:
  void add(size_t begin, size_t end);     // nothing of it may be there
  void remove(size_t begin, size_t end);  // whatever of it is there
  size_t count() const { return count_; }
  // What of [begin, end) is not there, ascending.
  std::vector<std::pair<size_t, size_t>> gaps_in(size_t begin, size_t end) const;
  // The begin of the smallest range with `count` numbers or more; of equal ones the first.
  std::optional<size_t> best_fit(size_t count) const;

  // Ascending [begin, end).
  const std::map<size_t, size_t>& by_begin() const { return end_of_; }

 private:
  using Iterator = std::map<size_t, size_t>::iterator;
  Iterator insert(size_t begin, size_t end);
  Iterator erase(Iterator range);

  std::map<size_t, size_t> end_of_;
  std::set<std::pair<size_t, size_t>> by_count_;
  size_t count_ = 0;
};

}  // namespace torch_xla::pjrt
