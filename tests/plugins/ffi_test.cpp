// Custom calls of functions of this process, where the plugin has them.
#include "plugin_fixture.h"

#include "xla/ffi/api/ffi.h"

namespace torch_xla::pjrt {
namespace {

namespace ffi = xla::ffi;

ffi::Error add_number(int64_t number, ffi::Buffer<ffi::F32> input,
                      ffi::ResultBuffer<ffi::F32> output) {
  if (number < 0) {
    return ffi::Error::Internal("the number is negative");
  }
  for (size_t i = 0; i < input.element_count(); ++i) {
    output->typed_data()[i] = input.typed_data()[i] + static_cast<float>(number);
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(kAddNumber, add_number,
                       ffi::Ffi::Bind()
                           .Attr<int64_t>("number")
                           .Arg<ffi::Buffer<ffi::F32>>()
                           .Ret<ffi::Buffer<ffi::F32>>());

class FfiTest : public PluginTest {
 protected:
  static void register_handler() {
    static const bool once = [] {
      client().register_ffi_handler("test_add_number", reinterpret_cast<void*>(kAddNumber));
      return true;
    }();
    (void)once;
  }
  static std::string call(int64_t number, const std::string& operand, const std::string& type) {
    return "stablehlo.custom_call @test_add_number(" + operand +
           ") {api_version = 4 : i32, backend_config = {number = " + std::to_string(number) +
           " : i64}} : (" + type + ") -> " + type;
  }
};

TEST_F(FfiTest, CallsAFunctionOrSaysThatItCannot) {
  if (!client().has_ffi()) {
    EXPECT_TRUE(contains(message_of([] { register_handler(); }), "use a newer plugin"));
    return;
  }
  register_handler();
  auto executable = compile(
      program(4, 1, 1, "%0 = " + call(7, "%arg0", "tensor<4xf32>") + "\nreturn %0 : tensor<4xf32>"),
      {floats(4)});
  BufferPtr input = upload({1, 2, 3, 4});
  std::vector<float> expected = {8, 9, 10, 11};
  EXPECT_EQ(download(*executable->execute({input.get()}, {false}, 0)[0]), expected);
  auto loaded = client().deserialize(executable->serialize(), {}, {floats(4)});
  EXPECT_EQ(download(*loaded->execute({input.get()}, {false}, 0)[0]), expected);
}

TEST_F(FfiTest, DeliversItsErrorToWhoeverReads) {
  if (!client().has_ffi()) {
    GTEST_SKIP() << "this plugin has no FFI";
  }
  register_handler();
  // Slow before it fails, so that the launch itself succeeds.
  std::string type = "tensor<1200x1200xf32>";
  auto failing =
      compile("module @test { func.func @main(%a: " + type + ") -> (" + type +
                  ") { %0 = stablehlo.dot %a, %a : (" + type + ", " + type + ") -> " + type +
                  " %1 = " + call(-1, "%0", type) + " return %1 : " + type + " } }",
              {slow_type()});
  auto consumer =
      compile("module @test { func.func @main(%a: " + type + ") -> (" + type +
                  ") { %0 = stablehlo.add %a, %a : " + type + " return %0 : " + type + " } }",
              {slow_type()});
  BufferPtr input = slow_input();
  BufferPtr failed = failing->execute({input.get()}, {false}, 0)[0];
  BufferPtr consumed = consumer->execute({failed.get()}, {false}, 0)[0];
  EXPECT_TRUE(contains(message_of([&] { consumed->await_ready(); }), "the number is negative"));
  EXPECT_TRUE(contains(message_of([&] { failed->host_pointer(); }), "the number is negative"));
  EXPECT_EQ(download(*doubling()->execute({upload({1, 2, 3, 4}).get()}, {false}, 0)[0])[0], 2);
}

}  // namespace
}  // namespace torch_xla::pjrt
