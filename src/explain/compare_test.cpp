#include "explain/compare.h"

#include "base/location.h"

#include <gtest/gtest.h>

namespace torch_xla::explain {
namespace {

// Graphs of unary operators in a chain, written down by hand.
class Chain {
 public:
  explicit Chain(Dims shape) : shape_(std::move(shape)) {
    summary_.inputs = {{DType::Float, shape_}};
  }

  Chain& then(const std::string& op, const std::string& file, int line, const char* scope) {
    Signature signature;
    signature.op = "aten::" + op;
    signature.arguments = {OperandRef{0}};
    signature.operands = {{DType::Float, shape_, row_major_strides(shape_), 0}};
    signature.hash = std::hash<std::string>()(op) + static_cast<uint64_t>(shape_.front());
    const uint32_t location = intern_location({file, line, scope});
    const uint64_t key = std::hash<std::string>()(op) ^ (uint64_t{location} << 32);
    const auto count = static_cast<int32_t>(summary_.operations.size());
    summary_.operations.push_back(
        {std::make_shared<Signature>(signature), location, static_cast<uint32_t>(count), 0, key});
    summary_.operands.push_back({count - 1, 0});
    summary_.sorted_keys.push_back(key);
    return *this;
  }

  GraphSummary done(uint64_t hash) {
    std::sort(summary_.sorted_keys.begin(), summary_.sorted_keys.end());
    summary_.outputs = {{static_cast<int32_t>(summary_.operations.size()) - 1, 0}};
    summary_.donated = {-1};
    summary_.hash = hash;
    return summary_;
  }

 private:
  Dims shape_;
  GraphSummary summary_;
};

TEST(Explain, CommonOperationsCountEachOccurrenceOnce) {
  GraphSummary two = Chain({4}).then("sin", "a.py", 1, "f").then("sin", "a.py", 1, "f").done(1);
  GraphSummary one = Chain({4}).then("sin", "a.py", 1, "f").then("sin", "a.py", 2, "f").done(2);
  EXPECT_EQ(count_common(two.sorted_keys, one.sorted_keys), 1u);
  EXPECT_EQ(count_common(two.sorted_keys, two.sorted_keys), 2u);
}

TEST(Explain, AlignsByOperatorAndLineInOrder) {
  GraphSummary before = Chain({4}).then("sin", "a.py", 1, "f").then("cos", "a.py", 2, "f").done(1);
  GraphSummary now = Chain({4})
                         .then("sin", "a.py", 1, "f")
                         .then("exp", "a.py", 3, "f")
                         .then("cos", "a.py", 2, "f")
                         .done(2);
  Alignment alignment = align(before, now);
  EXPECT_EQ(alignment.before_of, (std::vector<int32_t>{0, -1, 1}));
  EXPECT_EQ(alignment.now_of, (std::vector<int32_t>{0, 2}));
}

TEST(Explain, WorkFromOtherCodeJoinedARegion) {
  GraphSummary before = Chain({4}).then("sin", "/home/me/model.py", 7, "Net.forward").done(1);
  GraphSummary now = Chain({4})
                         .then("neg", "/home/me/data.py", 10, "load")
                         .then("exp", "/home/me/data.py", 10, "load")
                         .then("abs", "/home/me/data.py", 11, "load")
                         .then("sin", "/home/me/model.py", 7, "Net.forward")
                         .done(2);
  EXPECT_EQ(compare(before, now, true).reason,
            "three operations recorded before the region at data.py:10 joined this graph");
  EXPECT_EQ(compare(before, now, false).reason,
            "three operations recorded at data.py:10 joined this graph: what they compute was an "
            "input before");
}

TEST(Explain, AnOperationOfTheSameCodeIsNew) {
  GraphSummary before = Chain({4}).then("sin", "model.py", 78, "Net.forward").done(1);
  GraphSummary now = Chain({4})
                         .then("neg", "model.py", 77, "Net.forward")
                         .then("sin", "model.py", 78, "Net.forward")
                         .done(2);
  EXPECT_EQ(compare(before, now, true).reason, "operator aten::neg at model.py:77 is new");
}

TEST(Explain, AShapeAtAnInputExplainsWhatFollows) {
  GraphSummary before =
      Chain({32, 4}).then("sin", "m.py", 1, "f").then("cos", "m.py", 2, "f").done(1);
  GraphSummary now = Chain({17, 4}).then("sin", "m.py", 1, "f").then("cos", "m.py", 2, "f").done(2);
  EXPECT_EQ(compare(before, now, true).reason,
            "argument 1 of aten::sin at m.py:1 had shape [32, 4], now [17, 4] (last batch?)");
  EXPECT_EQ(compare(now, before, true).cause, "shape");
}

}  // namespace
}  // namespace torch_xla::explain
