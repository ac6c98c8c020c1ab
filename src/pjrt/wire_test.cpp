#include "pjrt/wire.h"

#include "pjrt/compile_options.h"
#include "pjrt/hlo_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace torch_xla::pjrt {
namespace {

using wire::write_bytes;
using wire::write_integer;

TEST(WireTest, ReadsWhatItWrites) {
  std::string text;
  write_integer(text, 1, -1);
  write_integer(text, 200, 300);
  write_bytes(text, 3, "abc");
  wire::Field field;
  wire::Reader reader(text);
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.number, 1);
  EXPECT_EQ(static_cast<int64_t>(field.integer), -1);
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.number, 200);
  EXPECT_EQ(field.integer, 300u);
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.bytes, "abc");
  EXPECT_FALSE(reader.next(field));
}

TEST(WireTest, RefusesDamagedMessages) {
  for (const std::string& bytes :
       {std::string("\x0a\x05"
                    "ab"),
        std::string("\x08"), std::string(11, '\xff'), std::string("\x0b")}) {
    EXPECT_THROW(hlo_text(bytes), Error);
  }
}

TEST(CompileOptionsTest, EncodesOneDevice) {
  // 3: {1: -1, 4: 1, 5: 1}, 4: true
  EXPECT_EQ(encode_compile_options({}, "tpu"),
            std::string("\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01"
                        "\x20\x01"));
}

TEST(CompileOptionsTest, EncodesPartitions) {
  // 3: {1: -1, 4: 1, 5: 8, 6: true}
  CompileOptions options;
  options.partitions = 8;
  options.spmd = true;
  EXPECT_EQ(encode_compile_options(options, "tpu"),
            std::string("\x1a\x11\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x08"
                        "\x30\x01"));
}

// 7: {1: flag, 2: {field: value}}
std::string flag(const std::string& name, const std::string& value_message) {
  std::string entry, result;
  write_bytes(entry, 1, name);
  write_bytes(entry, 2, value_message);
  write_bytes(result, 7, entry);
  return result;
}

std::string text_flag(const std::string& name, const std::string& value) {
  std::string message;
  write_bytes(message, 1, value);
  return flag(name, message);
}

TEST(CompileOptionsTest, SetsFlagsOfTheCpu) {
  const auto parts = std::min(std::thread::hardware_concurrency(), 32u);
  std::string wanted = flag("xla_cpu_enable_fast_min_max", std::string("\x10\x00", 2)) +
                       text_flag("xla_cpu_parallel_codegen_split_count", std::to_string(parts));
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16")) {
    wanted += text_flag("xla_cpu_prefer_vector_width", "512");
  }
#endif
  EXPECT_EQ(encode_compile_options({}, "cpu"), encode_compile_options({}, "tpu") + wanted);
}

TEST(CompileOptionsTest, LeaveTheUsersFlagsAlone) {
  setenv("XLA_FLAGS", "--xla_cpu_prefer_vector_width=256", 1);
  const std::string options = encode_compile_options({}, "cpu");
  unsetenv("XLA_FLAGS");
  EXPECT_EQ(options.find("xla_cpu_prefer_vector_width"), std::string::npos);
}

std::string shape(int64_t type, int64_t dimension) {
  std::string layout, text;
  write_integer(layout, 1, 0);
  write_integer(text, 2, type);
  write_integer(text, 3, dimension);
  write_bytes(text, 5, layout);
  return text;
}

std::string instruction(int64_t id, const std::string& name, const std::string& opcode) {
  std::string text;
  write_bytes(text, 1, name);
  write_bytes(text, 2, opcode);
  write_bytes(text, 3, shape(11, 4));
  write_integer(text, 35, id);
  return text;
}

TEST(HloTextTest, WritesInstructionsAsPeopleReadThem) {
  std::string metadata;
  write_bytes(metadata, 2, "Net/add");
  write_bytes(metadata, 3, "train.py");
  write_integer(metadata, 4, 42);
  std::string sum = instruction(2, "sum", "add");
  write_integer(sum, 36, 1);
  write_integer(sum, 36, 1);
  write_bytes(sum, 7, metadata);
  std::string computation, module;
  write_bytes(computation, 1, "main");
  write_bytes(computation, 2, instruction(1, "x", "parameter"));
  write_bytes(computation, 2, sum);
  write_integer(computation, 5, 9);
  write_integer(computation, 6, 2);
  write_bytes(module, 1, "step");
  write_bytes(module, 3, computation);
  write_integer(module, 6, 9);
  EXPECT_EQ(hlo_text(module),
            "HloModule step\n\nENTRY %main {\n"
            "  %x = f32[4]{0} parameter(0)\n"
            "  ROOT %sum = f32[4]{0} add(%x, %x), metadata={op_name=\"Net/add\" "
            "source_file=\"train.py\" source_line=42}\n}\n");
}

}  // namespace
}  // namespace torch_xla::pjrt
