#include "sharding/sharding.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <numeric>

namespace torch_xla {

namespace {

std::vector<int64_t> numbers(int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

using Integers = std::vector<int64_t>;

Integers list(const c10::SmallVector<int64_t, 6>& values) { return {values.begin(), values.end()}; }

}  // namespace

TEST(Sharding, EqualOnesAreTheSameObject) {
  ShardingPtr one = Sharding::tiled({2, 4}, numbers(8));
  EXPECT_EQ(one, Sharding::tiled({2, 4}, numbers(8)));
  EXPECT_NE(one, Sharding::tiled({4, 2}, numbers(8)));
  EXPECT_EQ(Sharding::tiled({1, 1}, numbers(8)), Sharding::replicated());
}

TEST(Sharding, TextIsReadBack) {
  for (const char* text : {"{replicated}", "{manual}", "{devices=[2,4]0,1,2,3,4,5,6,7}",
                           "{devices=[8]7,6,5,4,3,2,1,0}",
                           "{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"}) {
    EXPECT_EQ(Sharding::parse(text)->text(), text);
  }
  EXPECT_EQ(Sharding::parse("{devices=[4,2]<=[8]}")->text(), "{devices=[4,2]0,1,2,3,4,5,6,7}");
  EXPECT_EQ(Sharding::parse("{devices=[4,2]<=[2,4]T(1,0)}")->text(),
            "{devices=[4,2]0,4,1,5,2,6,3,7}");
}

TEST(Sharding, BadTextIsRefused) {
  for (const char* text : {"", "{", "{devices=[2]}", "{devices=[2]0,1", "{devices=[2]0,0}",
                           "{devices=[3]0,1}", "{replicated} ", "{devices=[2,2]<=[2,2]T(0)}"}) {
    EXPECT_THROW(Sharding::parse(text), Error) << text;
  }
}

TEST(Sharding, UnevenPiecesAreRoundedUpAndClipped) {
  ShardingPtr sharding = Sharding::tiled({4}, numbers(4));
  EXPECT_EQ(list(sharding->shard_dims(Integers{5})), Integers{2});
  EXPECT_EQ(list(sharding->box_of(Integers{5}, 2).start), Integers{4});
  EXPECT_EQ(list(sharding->box_of(Integers{5}, 2).stop), Integers{5});
  EXPECT_EQ(list(sharding->box_of(Integers{5}, 3).start),
            list(sharding->box_of(Integers{5}, 3).stop));
}

TEST(Sharding, CopiesShareATile) {
  ShardingPtr sharding = Sharding::parse("{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}");
  EXPECT_EQ(sharding->copies(), 2);
  for (int64_t device : {0, 2}) {
    EXPECT_EQ(list(sharding->box_of(Integers{4, 3}, device).stop), (Integers{2, 3}));
  }
  EXPECT_EQ(list(sharding->box_of(Integers{4, 3}, 3).start), (Integers{2, 0}));
  EXPECT_EQ(sharding->replica_of(0), 0);
  EXPECT_EQ(sharding->replica_of(2), 1);
}

TEST(Sharding, PermutingMovesBoxes) {
  ShardingPtr sharding = Sharding::parse("{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}");
  ShardingPtr permuted = sharding->permuted(Integers{1, 0});
  for (int64_t device = 0; device < 4; ++device) {
    Box box = sharding->box_of(Integers{4, 6}, device),
        other = permuted->box_of(Integers{6, 4}, device);
    EXPECT_EQ(box.start[0], other.start[1]);
    EXPECT_EQ(box.stop[1], other.stop[0]);
  }
}

TEST(Sharding, CutAndPasteRestoreTheArray) {
  Integers dims{5, 3, 7};
  std::vector<int32_t> array(5 * 3 * 7), back(array.size(), -1);
  std::iota(array.begin(), array.end(), 0);
  ShardingPtr sharding = Sharding::tiled({2, 1, 4}, numbers(8));
  auto piece_dims = sharding->shard_dims(dims);
  EXPECT_EQ(list(piece_dims), (Integers{3, 3, 2}));
  for (int64_t device = 0; device < 8; ++device) {
    std::vector<int32_t> piece(3 * 3 * 2, -1);
    Box box = sharding->box_of(dims, device);
    cut(array.data(), dims, sizeof(int32_t), box, piece.data(), piece_dims);
    paste(back.data(), dims, sizeof(int32_t), box, piece.data(), piece_dims);
  }
  EXPECT_EQ(array, back);
}

TEST(Sharding, RowsAreOneRun) {
  EXPECT_EQ(offset_of_run(Integers{4, 3}, {{2, 0}, {4, 3}}), 6);
  EXPECT_EQ(offset_of_run(Integers{4, 3}, {{1, 1}, {2, 3}}), 4);
  EXPECT_EQ(offset_of_run(Integers{4, 3}, {{0, 1}, {2, 3}}), -1);
}

}  // namespace torch_xla
