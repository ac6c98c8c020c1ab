#include "ir/signature.h"

#include <gtest/gtest.h>

#include <limits>

namespace torch_xla {
namespace {

Signature signature_with(Attribute argument) {
  Signature signature;
  signature.op = "test::op";
  signature.arguments = {std::move(argument)};
  return signature;
}

TEST(Signature, OnePerMeaningAndNoneWithoutUsers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const size_t before = signature_count();
  {
    const SignaturePtr one = intern(signature_with(nan));
    EXPECT_EQ(one, intern(signature_with(nan)));
    EXPECT_NE(one, intern(signature_with(0.0)));
    EXPECT_NE(intern(signature_with(0.0)), intern(signature_with(-0.0)));
    EXPECT_EQ(find_signature(one->hash), one);
    EXPECT_EQ(signature_count(), before + 1);
  }
  EXPECT_EQ(signature_count(), before);
}

TEST(Signature, ManyMeaningsNeverShareAHash) {
  std::vector<SignaturePtr> kept;
  for (int64_t i = 0; i < 10000; ++i) {
    kept.push_back(intern(signature_with(i)));
    ASSERT_EQ(find_signature(kept.back()->hash), kept.back());
  }
}

}  // namespace
}  // namespace torch_xla
