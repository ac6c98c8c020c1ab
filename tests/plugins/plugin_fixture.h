// What the conformance tests share: the plugin's client, with two devices, and small programs.
// The plugin is the one that TORCH_XLA_PLUGIN_PATH names; the suite runs once for each plugin.
#pragma once

#include "base/error.h"
#include "pjrt/plugin.h"
#include "pjrt/plugin_client.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace torch_xla::pjrt {

class PluginTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CPU_NUM_DEVICES", "2", 1);
    if (shared_client() == nullptr) {
      shared_client() = start_plugin_client(find_plugin("CPU"), "CPU").release();
    }
  }

  static Client& client() { return *shared_client(); }

  static BufferPtr upload(const std::vector<float>& values, int device = 0) {
    return client().buffer_from_host(values.data(), floats(values.size()), device, nullptr);
  }
  static std::vector<float> download(Buffer& buffer) {
    std::vector<float> values(static_cast<size_t>(buffer.type().numel()));
    buffer.copy_to_host(values.data(), values.size() * sizeof(float));
    return values;
  }
  static TensorType floats(size_t count) { return {DType::Float, {static_cast<int64_t>(count)}}; }

  // A program from and to f32[`count`] values: `arguments` and `results` many of them.
  static std::string program(size_t count, int arguments, int results, const std::string& body,
                             const std::string& attributes = "") {
    std::string type = "tensor<" + std::to_string(count) + "xf32>";
    std::string text = "module @test {\n func.func public @main(";
    for (int i = 0; i < arguments; ++i) {
      text += (i > 0 ? ", " : "") + ("%arg" + std::to_string(i) + ": " + type) + attributes;
    }
    std::string types;
    for (int i = 0; i < results; ++i) {
      types += (i > 0 ? ", " : "") + type;
    }
    return text + ") -> (" + types + ") {\n" + body + "\n }\n}";
  }
  // Kept to the end: one of the plugin's threads may be the last to hold a program that was
  // dropped, and would take it apart while the process is ending.
  static ExecutablePtr compile(const std::string& text, std::vector<TensorType> outputs,
                               const CompileOptions& options = {}) {
    static auto* kept = new std::vector<ExecutablePtr>;
    kept->push_back(client().compile(text, options, std::move(outputs)));
    return kept->back();
  }
  static ExecutablePtr doubling(const std::string& attributes = "") {
    return compile(program(4, 1, 1,
                           "%0 = stablehlo.add %arg0, %arg0 : tensor<4xf32>\n"
                           "return %0 : tensor<4xf32>",
                           attributes),
                   {floats(4)});
  }
  // 60 ms or so of work on one input and output of f32[kSlow, kSlow], so that a launch returns
  // before it is done.
  static constexpr int64_t kSlow = 1200;
  static TensorType slow_type() { return {DType::Float, {kSlow, kSlow}}; }
  static BufferPtr slow_input() {
    std::vector<float> ones(kSlow * kSlow, 1.0f);
    return client().buffer_from_host(ones.data(), slow_type(), 0, nullptr);
  }

  static std::string message_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

 private:
  static Client*& shared_client() {
    static Client* client = nullptr;
    return client;
  }
};

inline testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

}  // namespace torch_xla::pjrt
