#include "base/env.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace torch_xla {
namespace {

// Sets a variable for the life of a test.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }

 private:
  const char* name_;
};

template <typename Read>
std::string refusal(Read read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(EnvTest, GivesTheDefaultUnlessSet) {
  unsetenv("TORCH_XLA_CACHE_SIZE_MB");
  EXPECT_EQ(env::integer("TORCH_XLA_CACHE_SIZE_MB"), 2048);
  Setting number("TORCH_XLA_CACHE_SIZE_MB", "7");
  EXPECT_EQ(env::integer("TORCH_XLA_CACHE_SIZE_MB"), 7);
  Setting cleared("TORCH_XLA_CACHE_SIZE_MB", "");
  EXPECT_EQ(env::integer("TORCH_XLA_CACHE_SIZE_MB"), 2048);
}

TEST(EnvTest, ReadsFlags) {
  for (const char* yes : {"1", "true", "on"}) {
    Setting flag("XLA_USE_BF16", yes);
    EXPECT_TRUE(env::flag("XLA_USE_BF16")) << yes;
  }
  for (const char* no : {"0", "False", "off", ""}) {
    Setting flag("XLA_USE_BF16", no);
    EXPECT_FALSE(env::flag("XLA_USE_BF16")) << no;
  }
}

TEST(EnvTest, NamesVariableValueAndWhatIsAllowed) {
  Setting flag("TORCH_XLA_CACHE", "maybe");
  EXPECT_EQ(refusal([] { env::flag("TORCH_XLA_CACHE"); }),
            "environment variable TORCH_XLA_CACHE has the value 'maybe': it must be 1, true, yes, "
            "on or 0, false, no, off");
  for (const char* bad : {"-1", "0", "two", "3x", "100000", "99999999999999999999"}) {
    Setting count("CPU_NUM_DEVICES", bad);
    std::string message = refusal([] { env::integer("CPU_NUM_DEVICES"); });
    EXPECT_EQ(message, std::string("environment variable CPU_NUM_DEVICES has the value '") + bad +
                           "': it must be a whole number from 1 to 128");
  }
}

TEST(EnvTest, ExpandsTheHomeDirectory) {
  Setting home("HOME", "/home/me");
  for (auto [given, expected] :
       {std::pair("~/programs", "/home/me/programs"), std::pair("~", "/home/me"),
        std::pair("/a/~/b", "/a/~/b"), std::pair("~you/x", "~you/x")}) {
    Setting folder("TORCH_XLA_DUMP_DIR", given);
    EXPECT_EQ(env::path("TORCH_XLA_DUMP_DIR"), expected);
  }
}

TEST(EnvTest, FindsWrongValuesAndUnknownNames) {
  EXPECT_TRUE(env::problems().empty());
  Setting tiers("TORCH_XLA_TIERS", "sometimes");
  Setting typo("TORCH_XLA_CACHE_DIRR", "x");
  EXPECT_EQ(env::problems(),
            (std::vector<std::string>{
                "environment variable TORCH_XLA_TIERS has the value 'sometimes': it must be "
                "counted, async, off or never",
                "environment variable TORCH_XLA_CACHE_DIRR is not one of torch_xla and has no "
                "effect: did you mean TORCH_XLA_CACHE_DIR? docs/environment.md lists all"}));
  EXPECT_EQ(refusal([] { env::choice("TORCH_XLA_TIERS"); }), env::problems()[0]);
}

TEST(EnvTest, DocumentsEachVariable) {
  std::string page = env::markdown();
  for (const env::Variable& variable : env::kVariables) {
    EXPECT_NE(page.find(std::string("| `") + variable.name + "` |"), std::string::npos);
  }
}

}  // namespace
}  // namespace torch_xla
