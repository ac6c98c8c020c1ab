// The text the builder writes, without a plugin.
#include "stablehlo/builder.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace torch_xla::stablehlo {
namespace {

const TensorType kPair{DType::Float, {2}};

std::string message_of(const std::function<void(Builder&, Val)>& action) {
  Builder b("test");
  b.begin_function("main", true);
  Val x = b.parameter({DType::Float, {2, 3}});
  try {
    action(b, x);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(BuilderText, WritesAModule) {
  Builder b("a step");
  b.begin_function("main", true);
  Val x = b.parameter(kPair);
  b.alias_parameter(0, 0);
  Val total = b.reduce(x, b.constant(0.0, DType::Float), {0}, "add");
  b.end_function({b.mul(x, total), total});
  EXPECT_EQ(b.str(false),
            R"(module @a_step {
  func.func public @main(%arg0: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<2xf32>, tensor<f32>) {
    %0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.add across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %3 = stablehlo.multiply %arg0, %2 : tensor<2xf32>
    return %3, %1 : tensor<2xf32>, tensor<f32>
  }
}
)");
}

TEST(BuilderText, PutsLocationsOnlyWhereAsked) {
  Builder b("test");
  b.begin_function("main", true);
  Val x = b.parameter(kPair);
  b.set_location("train \"one\".py", 42, "Decoder.forward/aten::neg");
  Val y = b.unary("negate", x);
  b.set_location("", 0, "");
  b.end_function({y});
  std::string location = R"( loc("Decoder.forward/aten::neg"("train \"one\".py":42:0)))";
  std::string with = b.str(true);
  size_t at = with.find(location);
  ASSERT_NE(at, std::string::npos) << with;
  with.erase(at, location.size());
  EXPECT_EQ(with, b.str(false));
}

TEST(BuilderText, WritesFunctionsWhileAnotherIsOpen) {
  Builder b("test");
  b.begin_function("main", true);
  Val x = b.parameter(kPair);
  b.begin_function("twice", false);
  Val inner = b.parameter(kPair);
  b.end_function({b.add(inner, inner)});
  b.end_function(b.call("twice", {x}, {kPair}));
  std::string text = b.str(false);
  EXPECT_NE(text.find("func.func private @twice(%arg0: tensor<2xf32>) -> tensor<2xf32>"),
            std::string::npos);
  EXPECT_NE(text.find("%0 = func.call @twice(%arg0) : (tensor<2xf32>) -> tensor<2xf32>"),
            std::string::npos);
}

TEST(BuilderText, HasAKeyWithoutNamesOfTheUsers) {
  auto module = [](const std::string& program, const std::string& first, const std::string& second,
                   int line) {
    Builder b(program);
    b.begin_function("main", true);
    Val x = b.parameter(kPair);
    b.set_location(program + ".py", line, first);
    for (const std::string& name : {first, second}) {
      b.begin_function(name, false);
      Val inner = b.parameter(kPair);
      b.end_function({name == first ? b.add(inner, inner) : b.mul(inner, inner)});
      x = b.call(name, {x}, {kPair})[0];
    }
    x = b.call(first, {x}, {kPair})[0];
    b.end_function({x});
    return b;
  };
  std::string key = module("step", "layer", "head", 1).key();
  EXPECT_EQ(key, module("other", "Layer_2", "f", 22).key());
  EXPECT_NE(key, module("step", "layer", "layer", 1).key());
  EXPECT_EQ(key.find("layer"), std::string::npos) << key;
  EXPECT_NE(module("step", "layer", "head", 1).str(true), module("step", "f", "head", 1).str(true));
}

TEST(BuilderText, LeavesOutWhatChangesNothing) {
  Builder b("test");
  b.begin_function("main", true);
  Val x = b.parameter({DType::Float, {2, 3}});
  std::string before = b.str(false);
  Val y = b.convert(b.transpose(b.reshape(b.expand(x, {2, 3}), {2, 3}), {0, 1}), DType::Float);
  y = b.concatenate({b.slice_dim(y, 0, 0, 2)}, 1);
  b.end_function({y});
  EXPECT_NE(b.str(false).find("return %arg0"), std::string::npos) << b.str(false);
}

TEST(BuilderText, WritesNumbersThatAreReadBitByBit) {
  const double infinity = std::numeric_limits<double>::infinity();
  auto text = [](auto value, DType dtype) { return number_text(Number::of(value), dtype); };
  EXPECT_EQ(text(0.1, DType::Double), "1.000000e-01");
  EXPECT_EQ(text(1.0 / 3, DType::Double), "3.3333333333333331e-01");
  EXPECT_EQ(text(0.1, DType::Float), "1.000000e-01");
  EXPECT_EQ(text(1.0 / 3, DType::Float), "3.33333343e-01");
  EXPECT_EQ(text(-0.0, DType::Float), "-0.000000e+00");
  EXPECT_EQ(text(-infinity, DType::Float), "0xFF800000");
  EXPECT_EQ(text(std::numeric_limits<double>::quiet_NaN(), DType::Half), "0x7E00");
  EXPECT_EQ(text(1.0, DType::BFloat16), "1.000000e+00");
  EXPECT_EQ(text(1.0, DType::Float8_e5m2), "1.000000e+00");
  EXPECT_EQ(text(int64_t{-1}, DType::Byte), "255");
  EXPECT_EQ(text(int64_t{300}, DType::Char), "44");
  EXPECT_EQ(text(int64_t{-1}, DType::UInt64), "18446744073709551615");
  EXPECT_EQ(text(2.9, DType::Int), "2");
  EXPECT_EQ(text(0.5, DType::Bool), "true");
  EXPECT_EQ(text(std::complex<double>(1, -2), DType::ComplexFloat),
            "(1.000000e+00, -2.000000e+00)");
  EXPECT_EQ(text(true, DType::Float), "1.000000e+00");
}

TEST(BuilderText, NamesTheOperationThatDoesNotFit) {
  EXPECT_EQ(message_of([](Builder& b, Val x) { b.reshape(x, {4}); }),
            "stablehlo.reshape: [4] does not fit tensor<2x3xf32>");
  EXPECT_EQ(message_of([](Builder& b, Val x) {
              b.add(x, b.full(0.0, {DType::Int, {2, 3}}));
            }),
            "stablehlo.add: operands differ: tensor<2x3xf32> and tensor<2x3xi32>");
  EXPECT_EQ(message_of([](Builder& b, Val x) { b.slice_dim(x, 1, 2, 4); }),
            "stablehlo.slice: [2, 4] does not fit tensor<2x3xf32>");
  EXPECT_EQ(message_of([](Builder& b, Val x) {
              b.expand(x, {2, 4});
            }),
            "stablehlo.broadcast_in_dim: [2, 4] does not fit tensor<2x3xf32>");
  EXPECT_EQ(message_of([](Builder& b, Val) { b.constant(0.0, DType::QInt8); }),
            "dtype QInt8 has no counterpart on the xla device");
}

}  // namespace
}  // namespace torch_xla::stablehlo
