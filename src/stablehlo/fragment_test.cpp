#include "stablehlo/fragment.h"

#include "base/error.h"
#include "stablehlo/builder.h"

#include <gtest/gtest.h>

namespace torch_xla::stablehlo {
namespace {

constexpr char kModule[] = R"(#loc1 = loc("x":1:2)
module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%a: tensor<2x3xf32> {mhlo.sharding = "{tensor<9xf32>}"} loc("x"), %b: tensor<i1>) -> (tensor<3xcomplex<f32>> {jax.result_info = ""}, tensor<bf16>) {
    %0:2 = call @helper(%a, %b) : (tensor<2x3xf32>, tensor<i1>) -> (tensor<3xcomplex<f32>>, tensor<bf16>) loc(#loc1)
    "x.y"() {text = "@helper"} : () -> ()
    return %0#0, %0#1 : tensor<3xcomplex<f32>>, tensor<bf16>
  }
  func.func private @helper(tensor<2x3xf32>, tensor<i1>) -> (tensor<3xcomplex<f32>>, tensor<bf16>)
}
)";

TEST(Fragment, KnowsTheTypesOfMain) {
  FunctionType type = main_type(kModule);
  std::vector<TensorType> parameters = {{DType::Float, {2, 3}}, {DType::Bool, {}}};
  std::vector<TensorType> results = {{DType::ComplexFloat, {3}}, {DType::BFloat16, {}}};
  EXPECT_EQ(type.parameters, parameters);
  EXPECT_EQ(type.results, results);
  EXPECT_EQ(main_type("func.func @main() -> tensor<4xi8> { }").results[0],
            (TensorType{DType::Char, {4}}));
}

TEST(Fragment, RefusesWhatHasNoTensors) {
  EXPECT_THROW(main_type("module {}"), Error);
  EXPECT_THROW(main_type("func.func @main(%a: tensor<?xf32>) {}"), Error);
  EXPECT_THROW(main_type("func.func @main(%a: !stablehlo.token) {}"), Error);
  EXPECT_THROW(main_type("func.func @main(%a: tensor<2xf32>"), Error);
}

TEST(Fragment, RenamesFunctionsAndDropsLocations) {
  std::string text = functions_of(kModule, [](const std::string& name) { return "x_" + name; });
  EXPECT_NE(text.find("func.func private @x_main("), std::string::npos) << text;
  EXPECT_NE(text.find("call @x_helper("), std::string::npos) << text;
  EXPECT_NE(text.find("\"@helper\""), std::string::npos) << text;
  EXPECT_EQ(text.find("loc("), std::string::npos) << text;
  EXPECT_EQ(text.find("module"), std::string::npos) << text;
}

TEST(Fragment, IsEmbeddedOnce) {
  constexpr char kTwice[] =
      "module { func.func @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> } }";
  Builder b("test");
  b.begin_function("main", true);
  Val x = b.parameter({DType::Float, {}});
  b.end_function({b.call_fragment(kTwice, {b.call_fragment(kTwice, {x})[0]})[0]});
  const std::string text = b.str(false);
  const std::string head = "func.func private";
  EXPECT_EQ(text.find(head), text.rfind(head)) << text;
  EXPECT_NE(text.find(head), std::string::npos) << text;
  EXPECT_EQ(b.key().find("fragment"), std::string::npos) << b.key();
}

}  // namespace
}  // namespace torch_xla::stablehlo
