#include "pjrt/plugin.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <functional>

namespace torch_xla::pjrt {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class FindPluginTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) {
      const char* value = getenv(name);
      saved_.push_back(value == nullptr ? "" : value);
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (size_t i = 0; i < saved_.size(); ++i) {
      setenv(kVariables[i], saved_[i].c_str(), 1);
    }
    set_plugin_finder(nullptr);
  }
  static constexpr const char* kVariables[] = {"TORCH_XLA_PLUGIN_PATH", "PJRT_PLUGIN_LIBRARY_PATH"};
  std::vector<std::string> saved_;
};

TEST_F(FindPluginTest, PrefersTheEnvironmentToTheFinder) {
  set_plugin_finder([](const std::string& device) { return "/found/" + device + ".so"; });
  EXPECT_EQ(find_plugin("TPU"), "/found/TPU.so");
  setenv("PJRT_PLUGIN_LIBRARY_PATH", "/alias.so", 1);
  EXPECT_EQ(find_plugin("TPU"), "/alias.so");
  setenv("TORCH_XLA_PLUGIN_PATH", "/explicit.so", 1);
  EXPECT_EQ(find_plugin("TPU"), "/explicit.so");
}

TEST_F(FindPluginTest, SaysWhatToDoWhenThereIsNone) {
  EXPECT_EQ(message_of([] { find_plugin("TPU"); }),
            "no PJRT plugin was found for PJRT_DEVICE=TPU: install the plugin's package, or set "
            "TORCH_XLA_PLUGIN_PATH to the path of its library");
}

TEST(LoadPluginTest, NamesALibraryThatIsNone) {
  EXPECT_EQ(message_of([] {
              load_plugin("/nowhere/plugin.so");
            }).find("cannot load the PJRT plugin /nowhere/plugin.so: "),
            0u);
  EXPECT_EQ(message_of([] { load_plugin("libc.so.6"); }),
            "libc.so.6 is not a PJRT plugin: it has no function GetPjrtApi");
}

// An old plugin's table ends before the functions that later versions added.
TEST(ApiTest, RefusesFunctionsThatThePluginLacks) {
  PJRT_Api table = {};
  table.struct_size = offsetof(PJRT_Api, PJRT_Client_Compile);
  table.PJRT_Client_Compile = [](PJRT_Client_Compile_Args*) -> PJRT_Error* { return nullptr; };
  Api api(&table, "old.so");
  auto args = PJRT_ARGS(PJRT_Client_Compile);
  std::string refusal =
      "the PJRT plugin old.so does not offer PJRT_Client_Compile: install a newer version of it";
  EXPECT_EQ(message_of([&] { PJRT_CALL(api, PJRT_Client_Compile, args); }), refusal);
  table.struct_size = sizeof(PJRT_Api);
  EXPECT_EQ(message_of([&] { PJRT_CALL(api, PJRT_Client_Compile, args); }), "no error");
  table.PJRT_Client_Compile = nullptr;
  EXPECT_EQ(message_of([&] { PJRT_CALL(api, PJRT_Client_Compile, args); }), refusal);
}

}  // namespace
}  // namespace torch_xla::pjrt
