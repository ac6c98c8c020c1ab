#include "base/spare_hands.h"

#include <gtest/gtest.h>

namespace torch_xla {
namespace {

class Pieces final : public SharedWork {
 public:
  explicit Pieces(int count) : left_(count) {}
  bool work() override { return left_ > 0 ? left_ = 0, true : false; }
  int left() const { return left_; }

 private:
  int left_;
};

TEST(SpareHandsTest, AHandHelpsWithWhatIsOffered) {
  SpareHand hand;
  EXPECT_FALSE(hand.help());
  const auto earlier = std::make_shared<Pieces>(3), later = std::make_shared<Pieces>(0);
  {
    const Offer first(earlier), second(later);
    EXPECT_EQ(first.hands(), 1);
    EXPECT_TRUE(hand.help());  // not with what has no piece left
    EXPECT_EQ(earlier->left(), 0);
    EXPECT_FALSE(hand.help());
  }
  EXPECT_FALSE(hand.help());
  EXPECT_EQ(earlier.use_count(), 1);
  EXPECT_EQ(later.use_count(), 1);
}

TEST(SpareHandsTest, AHandThatWasCountedLooksOnceMoreBeforeItGoes) {
  const auto work = std::make_shared<Pieces>(3);
  {
    auto hand = std::make_unique<SpareHand>();
    const Offer offer(work);
    EXPECT_EQ(offer.hands(), 1);
    hand.reset();
    EXPECT_EQ(work->left(), 0);
    EXPECT_EQ(Offer(work).hands(), 0);
  }
  EXPECT_EQ(work.use_count(), 1);
}

}  // namespace
}  // namespace torch_xla
