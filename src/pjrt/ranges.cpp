#include "pjrt/ranges.h"

#include <algorithm>
#include <iterator>

namespace torch_xla::pjrt {

Ranges::Iterator Ranges::insert(size_t begin, size_t end) {
  by_count_.emplace(end - begin, begin);
  count_ += end - begin;
  return end_of_.emplace(begin, end).first;
}

Ranges::Iterator Ranges::erase(Iterator range) {
  const size_t count = range->second - range->first;
  by_count_.erase({count, range->first});
  count_ -= count;
  return end_of_.erase(range);
}

void Ranges::add(size_t begin, size_t end) {
  if (begin >= end) {
    return;
  }
  auto after = end_of_.lower_bound(begin);
  if (after != end_of_.end() && after->first == end) {
    end = after->second;
    after = erase(after);
  }
  if (after != end_of_.begin()) {
    auto before = std::prev(after);
    if (before->second == begin) {
      begin = before->first;
      erase(before);
    }
  }
  insert(begin, end);
}

void Ranges::remove(size_t begin, size_t end) {
  auto range = end_of_.upper_bound(begin);
  if (range != end_of_.begin() && std::prev(range)->second > begin) {
    range = std::prev(range);
  }
  while (range != end_of_.end() && range->first < end) {
    const auto [was_begin, was_end] = *range;
    range = erase(range);
    if (was_begin < begin) {
      insert(was_begin, begin);
    }
    if (end < was_end) {
      insert(end, was_end);
    }
  }
}

std::vector<std::pair<size_t, size_t>> Ranges::gaps_in(size_t begin, size_t end) const {
  std::vector<std::pair<size_t, size_t>> gaps;
  auto range = end_of_.upper_bound(begin);
  if (range != end_of_.begin()) {
    begin = std::max(begin, std::prev(range)->second);
  }
  for (; begin < end; ++range) {
    const size_t until = range == end_of_.end() ? end : std::min(end, range->first);
    if (begin < until) {
      gaps.emplace_back(begin, until);
    }
    if (until == end) {
      break;
    }
    begin = range->second;
  }
  return gaps;
}

std::optional<size_t> Ranges::best_fit(size_t count) const {
  const auto found = by_count_.lower_bound({count, 0});
  return found == by_count_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace torch_xla::pjrt
