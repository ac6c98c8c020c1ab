#include "base/hasher.h"

#include <gtest/gtest.h>

#include <set>

namespace torch_xla {
namespace {

std::string hash_of(std::initializer_list<std::string> texts) {
  Hasher hasher;
  for (const std::string& text : texts) {
    hasher.add(text);
  }
  return hasher.hex();
}

TEST(HasherTest, TellsNearlyEqualTextsApart) {
  std::string text(100, 'a');
  std::set<std::string> hashes = {hash_of({text})};
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] ^= 1;
    hashes.insert(hash_of({changed}));
    hashes.insert(hash_of({text.substr(0, i)}));
    hashes.insert(hash_of({text.substr(0, i), text.substr(i)}));
  }
  EXPECT_EQ(hashes.size(), 301u);
  EXPECT_NE(hash_of({std::string("a\0", 2)}), hash_of({"a"}));
}

// Keys of files that other processes read.
TEST(HasherTest, IsTheSameInEachProcess) {
  EXPECT_EQ(hash_of({"module @main", "cpu"}), "9e7d35293a870c16edbf882969b62c95");
  EXPECT_EQ(hash_of({}).size(), 32u);
}

}  // namespace
}  // namespace torch_xla
