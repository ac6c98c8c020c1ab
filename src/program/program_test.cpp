// Needs a plugin: TORCH_XLA_PLUGIN_PATH names it.
#include "program/program.h"

#include "base/error.h"
#include "metrics/metrics.h"
#include "program/program_key.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace torch_xla {
namespace {

namespace fs = std::filesystem;

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "torch_xla_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    setenv("TORCH_XLA_CACHE_DIR", (root_ / "cache").c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : {"XLA_PERSISTENT_CACHE_PATH", "TORCH_XLA_CACHE_DIR", "TORCH_XLA_CACHE",
                             "TORCH_XLA_DUMP_DIR"}) {
      unsetenv(name);
    }
    initialize_disk_cache("", false);
    fs::remove_all(root_);
  }

  static ProgramSource doubling() {
    ProgramSource source;
    source.name = "step at train.py:42";
    source.text =
        "module @step { func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {"
        " %0 = stablehlo.add %a, %a : tensor<2xf32> return %0 : tensor<2xf32> } }";
    source.text_with_locations = source.text;
    source.output_types = {{DType::Float, {2}}};
    return source;
  }
  static float run(const Program& program) {
    float values[2] = {1, 2};
    auto input = pjrt::client().buffer_from_host(values, {DType::Float, {2}}, 0, nullptr);
    program.executable().execute({input.get()}, {false}, 0)[0]->copy_to_host(values, 8);
    return values[1];
  }
  // How many programs `action` compiled.
  template <typename Action>
  static int64_t compiled_by(Action action) {
    int64_t before = metrics::counter("UncachedCompile").value();
    action();
    return metrics::counter("UncachedCompile").value() - before;
  }
  static int64_t compile_and_run(ProgramSource source) {
    return compiled_by([&] { EXPECT_EQ(run(*load_or_compile(std::move(source))), 4); });
  }
  // Without the plugin's digest, which lies there too.
  static std::vector<fs::path> entries(const fs::path& directory) {
    std::vector<fs::path> found;
    if (fs::exists(directory)) {
      for (const auto& file : fs::directory_iterator(directory)) {
        if (!file.path().filename().string().starts_with(kDigestPrefix)) {
          found.push_back(file.path());
        }
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  fs::path root_;
};

TEST_F(ProgramTest, IsCompiledOnceAndThenLoaded) {
  int64_t hits = metrics::counter("PersistentCacheHit").value();
  EXPECT_EQ(compile_and_run(doubling()), 1);
  EXPECT_EQ(compile_and_run(doubling()), 0);
  EXPECT_EQ(metrics::counter("PersistentCacheHit").value(), hits + 1);
  ProgramSource moved = doubling();  // other source lines, the same program
  moved.text_with_locations.insert(moved.text_with_locations.find("tensor<2xf32> return") + 13,
                                   " loc(\"train.py\":43:0)");
  EXPECT_EQ(compile_and_run(moved), 0);
}

TEST_F(ProgramTest, LiesInAFolderOfTwoNames) {
  setenv("XLA_PERSISTENT_CACHE_PATH", (root_ / "other").c_str(), 1);
  EXPECT_EQ(default_cache_directory(), root_ / "cache");
  unsetenv("TORCH_XLA_CACHE_DIR");
  EXPECT_EQ(default_cache_directory(), root_ / "other");
}

TEST_F(ProgramTest, IsKeptApartByWhatItsCodeDependsOn) {
  EXPECT_EQ(compile_and_run(doubling()), 1);
  setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false", 1);
  EXPECT_EQ(compile_and_run(doubling()), 1);
  unsetenv("XLA_FLAGS");
  EXPECT_EQ(compile_and_run(doubling()), 0);
  EXPECT_EQ(entries(root_ / "cache").size(), 2u);
}

TEST_F(ProgramTest, HasAKeyOfTextOptionsAndMachine) {
  const ProgramSource source = doubling();
  const std::string key = program_key(source, "machine", "cpu");
  ProgramSource renamed = source;
  renamed.name = "another step at elsewhere.py:1";
  renamed.text_with_locations += " ";
  EXPECT_EQ(program_key(renamed, "machine", "cpu"), key);
  EXPECT_NE(program_key(source, "a machine of other features", "cpu"), key);
  EXPECT_NE(program_key(source, "machine", "cuda"), key);
  ProgramSource other = source;
  other.text += " ";
  EXPECT_NE(program_key(other, "machine", "cpu"), key);
  other = source;
  other.options.xla_options["xla_cpu_enable_fast_math"] = "true";
  EXPECT_NE(program_key(other, "machine", "cpu"), key);
}

TEST_F(ProgramTest, KnowsAPluginByItsContentAndNotByItsPlace) {
  DiskCache cache(root_ / "cache", false);
  auto machine = [&](const std::string& file, const std::string& content,
                     const std::string& features) {
    std::ofstream(root_ / file) << content;
    return machine_of(root_ / file, features, cache);
  };
  const std::string first = machine("plugin.so", "code one", "avx2");
  EXPECT_EQ(machine("moved.so", "code one", "avx2"), first);
  EXPECT_NE(machine("other.so", "code two", "avx2"), first);  // as large
  EXPECT_NE(machine("plugin.so", "code one", "avx512"), first);
  setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false", 1);
  EXPECT_NE(machine("plugin.so", "code one", "avx2"), first);
  unsetenv("XLA_FLAGS");
}

TEST_F(ProgramTest, ReadsAPluginOnce) {
  DiskCache cache(root_ / "cache", false);
  std::ofstream(root_ / "plugin.so") << "code";
  machine_of(root_ / "plugin.so", "", cache);
  const auto digests = fs::directory_iterator(root_ / "cache");
  const std::string note = digests->path().stem();
  ASSERT_TRUE(note.starts_with(kDigestPrefix));
  cache.store(note, "", "remembered");
  machine_of(root_ / "another.so", "", cache);  // the process remembers one, too
  EXPECT_NE(machine_of(root_ / "plugin.so", "", cache).find("remembered"), std::string::npos);
  fs::last_write_time(root_ / "plugin.so", fs::file_time_type::clock::now());
  machine_of(root_ / "another.so", "", cache);
  EXPECT_EQ(machine_of(root_ / "plugin.so", "", cache).find("remembered"), std::string::npos);
}

TEST_F(ProgramTest, SaysOnceWhatThePluginCannotKeep) {
  ProgramSource source = doubling();
  source.name = "step at train.py:42";
  source.text =
      "module @step { func.func @main(%a: tensor<64x64xf32>) -> tensor<2xf32> {"
      " %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]"
      " : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>"
      " %1 = stablehlo.dot_general %0, %a, contracting_dims = [1] x [0]"
      " : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>"
      " %2 = stablehlo.dot_general %1, %0, contracting_dims = [1] x [0]"
      " : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>"
      " %3 = stablehlo.slice %2 [0:1, 0:2] : (tensor<64x64xf32>) -> tensor<1x2xf32>"
      " %4 = stablehlo.reshape %3 : (tensor<1x2xf32>) -> tensor<2xf32>"
      " return %4 : tensor<2xf32> } }";
  source.text_with_locations = source.text;
  source.options.xla_options["xla_multiheap_size_constraint_per_heap"] = "16384";
  static std::vector<std::string> warnings;
  warnings.clear();
  set_warning_handler([](const std::string& message) { warnings.push_back(message); });
  const int64_t before = metrics::counter("UnserializableProgram").value();
  load_or_compile(source);
  load_or_compile(source);
  set_warning_handler(nullptr);
  EXPECT_EQ(metrics::counter("UnserializableProgram").value(), before + 2);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].find("step at train.py:42 cannot be kept on disk, so every process will "
                             "compile it again: "),
            0u)
      << warnings[0];
  EXPECT_NE(warnings[0].find("PJRT_Executable_Serialize"), std::string::npos) << warnings[0];
}

TEST_F(ProgramTest, ReplacesADamagedEntry) {
  EXPECT_EQ(compile_and_run(doubling()), 1);
  fs::resize_file(entries(root_ / "cache").at(0), 100);
  EXPECT_EQ(compile_and_run(doubling()), 1);
  EXPECT_EQ(compile_and_run(doubling()), 0);
}

TEST_F(ProgramTest, IsNotKeptWithoutACache) {
  setenv("TORCH_XLA_CACHE", "0", 1);
  EXPECT_EQ(compile_and_run(doubling()), 1);
  EXPECT_EQ(compile_and_run(doubling()), 1);
  EXPECT_TRUE(entries(root_ / "cache").empty());
}

TEST_F(ProgramTest, IsKeptWhereTheUserSays) {
  initialize_disk_cache(root_ / "mine", false);
  EXPECT_EQ(compile_and_run(doubling()), 1);
  EXPECT_EQ(entries(root_ / "mine").size(), 1u);
  EXPECT_TRUE(entries(root_ / "cache").empty());
  initialize_disk_cache(root_ / "mine", true);
  EXPECT_EQ(compile_and_run(doubling()), 0);
}

TEST_F(ProgramTest, NamesWhatCannotBeCompiled) {
  ProgramSource source = doubling();
  source.text = source.text_with_locations = "module @step { nonsense }";
  try {
    load_or_compile(source);
    FAIL() << "compiled nonsense";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("cannot compile step at train.py:42: "), 0u);
  }
  EXPECT_TRUE(entries(root_ / "cache").empty());
}

TEST_F(ProgramTest, IsDumped) {
  setenv("TORCH_XLA_DUMP_DIR", (root_ / "dump").c_str(), 1);
  load_or_compile(doubling());
  auto files = entries(root_ / "dump");
  ASSERT_EQ(files.size(), 2u);
  auto text_of = [](const fs::path& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  EXPECT_EQ(files[0].filename().string().find("step_at_train_py_42."), 0u);
  EXPECT_NE(text_of(files[0]).find("ENTRY"), std::string::npos);
  EXPECT_EQ(text_of(files[1]), doubling().text);
}

}  // namespace
}  // namespace torch_xla
