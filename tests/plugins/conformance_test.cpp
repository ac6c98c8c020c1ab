// What every plugin must do: buffers, programs, devices, errors.
#include "pjrt/sharded_buffer.h"
#include "plugin_fixture.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

namespace torch_xla::pjrt {
namespace {

TEST_F(PluginTest, CarriesEveryDtype) {
  for (DType dtype :
       {DType::Bool, DType::Byte, DType::Char, DType::Short, DType::Int, DType::Long, DType::UInt16,
        DType::UInt32, DType::UInt64, DType::Half, DType::BFloat16, DType::Float, DType::Double,
        DType::ComplexFloat, DType::ComplexDouble, DType::Float8_e4m3fn, DType::Float8_e5m2,
        DType::Float8_e4m3fnuz, DType::Float8_e5m2fnuz}) {
    TensorType type{dtype, {2, 3}};
    std::vector<unsigned char> bytes(static_cast<size_t>(type.nbytes()));
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(dtype == DType::Bool ? i % 2 : i * 7 + 1);
    }
    BufferPtr buffer = client().buffer_from_host(bytes.data(), type, 0, nullptr);
    std::vector<unsigned char> back(bytes.size());
    buffer->copy_to_host(back.data(), back.size());
    EXPECT_EQ(back, bytes) << c10::toString(dtype);
    EXPECT_EQ(buffer->nbytes(), type.nbytes());
  }
}

TEST_F(PluginTest, RefusesADtypeOfNoDevice) {
  int byte = 0;
  EXPECT_TRUE(contains(message_of([&] {
                         client().buffer_from_host(&byte, {DType::QInt8, {1}}, 0, nullptr);
                       }),
                       "QInt8 is not supported on the xla device"));
}

TEST_F(PluginTest, CarriesArraysWithoutElementsOrDimensions) {
  BufferPtr empty = client().buffer_from_host(nullptr, {DType::Float, {0, 3}}, 0, nullptr);
  empty->await_ready();
  empty->copy_to_host(nullptr, 0);
  EXPECT_EQ(empty->nbytes(), 0);
  double number = 2.5, back = 0;
  BufferPtr scalar = client().buffer_from_host(&number, {DType::Double, {}}, 0, nullptr);
  scalar->copy_to_host(&back, sizeof(back));
  EXPECT_EQ(back, 2.5);
  auto program = compile(
      "module @test { func.func @main(%a: tensor<0x3xf32>) -> (tensor<0x3xf32>) {"
      " %0 = stablehlo.add %a, %a : tensor<0x3xf32> return %0 : tensor<0x3xf32> } }",
      {{DType::Float, {0, 3}}});
  program->execute({empty.get()}, {false}, 0)[0]->copy_to_host(nullptr, 0);
}

TEST_F(PluginTest, CopiesUnlessTheBytesAreKeptAlive) {
  std::vector<float> values = {1, 2, 3, 4};
  BufferPtr buffer = upload(values);
  values[0] = 9;
  EXPECT_EQ(download(*buffer), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(PluginTest, UsesKeptBytesInPlaceAndReleasesThem) {
  constexpr size_t kCount = 1 << 16;
  std::shared_ptr<float> bytes(static_cast<float*>(std::aligned_alloc(64, kCount * sizeof(float))),
                               &std::free);
  std::fill_n(bytes.get(), kCount, 3.0f);
  std::weak_ptr<float> alive = bytes;
  BufferPtr buffer = client().buffer_from_host(bytes.get(), floats(kCount), 0, bytes);
  EXPECT_EQ(buffer->host_pointer(), bytes.get());
  bytes = nullptr;
  EXPECT_FALSE(alive.expired());
  EXPECT_EQ(download(*buffer).back(), 3.0f);
  buffer = nullptr;
  EXPECT_TRUE(alive.expired());
}

TEST_F(PluginTest, RefusesToReadAnotherNumberOfBytes) {
  float one = 0;
  BufferPtr buffer = upload({1, 2});
  EXPECT_TRUE(contains(message_of([&] { buffer->copy_to_host(&one, sizeof(one)); }), "8 bytes"));
}

TEST_F(PluginTest, RunsAProgramOfSeveralInputsAndOutputs) {
  auto executable = compile(program(3, 2, 2,
                                    "%0 = stablehlo.add %arg0, %arg1 : tensor<3xf32>\n"
                                    "%1 = stablehlo.multiply %arg0, %arg1 : tensor<3xf32>\n"
                                    "return %0, %1 : tensor<3xf32>, tensor<3xf32>"),
                            {floats(3), floats(3)});
  BufferPtr x = upload({1, 2, 3}), y = upload({10, 20, 30});
  auto outputs = executable->execute({x.get(), y.get()}, {false, false}, 0);
  EXPECT_EQ(download(*outputs[0]), (std::vector<float>{11, 22, 33}));
  EXPECT_EQ(download(*outputs[1]), (std::vector<float>{10, 40, 90}));
  EXPECT_EQ(outputs[1]->type(), floats(3));
}

TEST_F(PluginTest, DonatesAnInputInPlace) {
  auto executable = doubling(" {tf.aliasing_output = 0 : i32}");
  BufferPtr input = upload({1, 2, 3, 4});
  const void* address = input->host_pointer();
  const int64_t buffers = live_buffer_count();
  auto outputs = executable->execute({input.get()}, {true}, 0);
  EXPECT_EQ(outputs[0]->host_pointer(), address);
  EXPECT_EQ(download(*outputs[0]), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_TRUE(input->is_deleted());
  EXPECT_EQ(live_buffer_count(), buffers);
  EXPECT_TRUE(contains(message_of([&] { download(*input); }), "donated"));
  EXPECT_TRUE(
      contains(message_of([&] { executable->execute({input.get()}, {true}, 0); }), "donated"));
}

TEST_F(PluginTest, KeepsAnInputThatIsNotDonatedThisTime) {
  auto executable = doubling(" {tf.aliasing_output = 0 : i32}");
  BufferPtr input = upload({1, 2, 3, 4});
  auto outputs = executable->execute({input.get()}, {false}, 0);
  EXPECT_EQ(download(*outputs[0]), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(download(*input), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(PluginTest, LoadsWhatItSerialised) {
  std::string bytes = doubling()->serialize();
  auto loaded = client().deserialize(bytes, {}, {floats(4)});
  BufferPtr input = upload({1, 2, 3, 4}, 1);
  EXPECT_EQ(download(*loaded->execute({input.get()}, {false}, 1)[0]),
            (std::vector<float>{2, 4, 6, 8}));
}

TEST_F(PluginTest, RefusesBytesThatAreNoProgram) {
  EXPECT_TRUE(contains(message_of([] { client().deserialize("junk", {}, {floats(4)}); }),
                       "loading a program"));
}

TEST_F(PluginTest, RunsOnEachDevice) {
  ASSERT_EQ(client().device_count(), 2);
  auto executable = doubling();
  BufferPtr first = upload({1, 2, 3, 4});
  BufferPtr second = first->copy_to_device(1);
  EXPECT_EQ(second->device(), 1);
  BufferPtr output = executable->execute({second.get()}, {false}, 1)[0];
  EXPECT_EQ(output->device(), 1);
  BufferPtr back = output->copy_to_device(0);
  EXPECT_EQ(download(*executable->execute({back.get()}, {false}, 0)[0]),
            (std::vector<float>{4, 8, 12, 16}));
  EXPECT_NE(client().device_description(0), client().device_description(1));
}

TEST_F(PluginTest, RefusesADeviceThatIsNotThere) {
  for (int device : {-1, 2}) {
    EXPECT_TRUE(contains(message_of([&] { upload({1}, device); }),
                         "xla:" + std::to_string(device) + " does not exist: there are 2"));
  }
}

TEST_F(PluginTest, ReturnsBeforeALongProgramIsDone) {
  std::string type = "tensor<1200x1200xf32>";
  auto executable = compile("module @test { func.func @main(%a: " + type + ") -> (" + type +
                                ") { %0 = stablehlo.dot %a, %a : (" + type + ", " + type + ") -> " +
                                type + " return %0 : " + type + " } }",
                            {slow_type()});
  BufferPtr input = slow_input();
  BufferPtr output = executable->execute({input.get()}, {false}, 0)[0];
  EXPECT_FALSE(output->is_ready());
  input = nullptr;  // the launch keeps what it reads
  output->await_ready();
  EXPECT_TRUE(output->is_ready());
  EXPECT_EQ(static_cast<float*>(output->host_pointer())[0], kSlow);
}

TEST_F(PluginTest, ReportsABadProgramAndGoesOn) {
  EXPECT_TRUE(contains(message_of([] { compile("module @test { nonsense }", {}); }),
                       "PJRT_Client_Compile"));
  EXPECT_TRUE(
      contains(message_of([] { compile(program(2, 1, 1, "return %arg0 : tensor<2xf32>"), {}); }),
               "1 outputs, expected 0"));
  BufferPtr input = upload({1, 2, 3, 4});
  EXPECT_EQ(download(*doubling()->execute({input.get()}, {false}, 0)[0])[3], 8);
}

TEST_F(PluginTest, ReportsExhaustedMemoryAndGoesOn) {
  const int64_t count = int64_t{1} << 50;
  std::string type = "tensor<" + std::to_string(count) + "xf32>";
  auto executable = compile("module @test { func.func @main() -> (" + type +
                                ") { %0 = stablehlo.constant dense<1.0> : " + type +
                                " return %0 : " + type + " } }",
                            {{DType::Float, {count}}});
  const int64_t before = live_buffer_bytes();
  EXPECT_THROW(executable->execute({}, {}, 0)[0]->await_ready(), OutOfMemoryError);
  EXPECT_EQ(live_buffer_bytes(), before);
  EXPECT_EQ(download(*upload({5}))[0], 5);
}

TEST_F(PluginTest, KeepsADonatedInputWhenTheLaunchFails) {
  auto executable = doubling(" {tf.aliasing_output = 0 : i32}");
  BufferPtr input = upload({1, 2, 3, 4});
  BufferPtr wrong = upload({1, 2});
  EXPECT_NE(message_of([&] { executable->execute({wrong.get()}, {true}, 0); }), "no error");
  EXPECT_FALSE(wrong->is_deleted());
  EXPECT_EQ(download(*wrong), (std::vector<float>{1, 2}));
}

// Memory given back to the kernel would take a fault for each of its pages: 40,000 here.
TEST_F(PluginTest, UsesTheMemoryOfALargeResultAgain) {
  if (!client().host_memory()) {
    GTEST_SKIP() << "only host memory is ours to keep";
  }
  constexpr size_t kCount = 40 << 20;  // 160 MB: more than glibc keeps
  const std::string type = "tensor<" + std::to_string(kCount) + "xf32>";
  auto executable = compile(
      program(kCount, 1, 1, "%0 = stablehlo.add %arg0, %arg0 : " + type + "\n return %0 : " + type),
      {floats(kCount)});
  BufferPtr input = upload(std::vector<float>(kCount, 1.0f));
  auto faults_of_a_run = [&] {
    rusage before = {}, after = {};
    getrusage(RUSAGE_SELF, &before);
    executable->execute({input.get()}, {false}, 0)[0]->await_ready();
    getrusage(RUSAGE_SELF, &after);
    return after.ru_minflt - before.ru_minflt;
  };
  std::vector<int64_t> faults;
  for (int i = 0; i < 9; ++i) {
    faults.push_back(faults_of_a_run());
  }
  std::sort(faults.begin(), faults.end());
  EXPECT_LT(faults[4], 1000);  // the plugin may release one result after the next is made
}

TEST_F(PluginTest, CountsMemoryByDevice) {
  const auto before = client().memory_stats(1);
  const int64_t others = client().memory_stats(0).bytes_in_use;
  BufferPtr buffer = upload(std::vector<float>(1000), 1);
  const auto during = client().memory_stats(1);
  EXPECT_EQ(during.bytes_in_use, before.bytes_in_use + 4000);
  EXPECT_GE(during.peak_bytes, during.bytes_in_use);
  EXPECT_GT(during.bytes_limit, int64_t{1} << 26);
  EXPECT_EQ(client().memory_stats(0).bytes_in_use, others);
  buffer = nullptr;
  EXPECT_EQ(client().memory_stats(1).bytes_in_use, before.bytes_in_use);
  EXPECT_GE(client().memory_stats(1).peak_bytes, during.bytes_in_use);
}

TEST_F(PluginTest, ShowsTheOptimisedProgramWithTheUsersLine) {
  auto executable = compile(
      "module @test { func.func @main(%a: tensor<4xf32>) -> (tensor<4xf32>) {"
      " %0 = stablehlo.add %a, %a : tensor<4xf32> loc(\"train.py\":42:0)"
      " return %0 : tensor<4xf32> } }",
      {floats(4)});
  std::string text = executable->optimized_hlo();
  EXPECT_TRUE(contains(text, "ENTRY"));
  EXPECT_TRUE(contains(text, "f32[4]{0} add("));
  EXPECT_TRUE(contains(text, "source_file=\"train.py\" source_line=42"));
}

TEST_F(PluginTest, TellsItsVersion) {
  EXPECT_EQ(client().platform_name(), "cpu");
  EXPECT_TRUE(contains(client().plugin_version(), "PJRT API 0."));
  EXPECT_TRUE(contains(client().fingerprint(), client().plugin_version()));
  EXPECT_TRUE(client().host_memory());
}

TEST_F(PluginTest, IsUsedFromManyThreads) {
  auto executable = doubling();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        float value = static_cast<float>(t * 1000 + i);
        BufferPtr input = upload({value, 0, 0, 0});
        right += download(*executable->execute({input.get()}, {false}, 0)[0])[0] == 2 * value;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(right, 400);
}

TEST_F(PluginTest, IsRefusedInAForkedChild) {
  BufferPtr buffer = upload({1, 2, 3, 4});
  auto executable = doubling();
  pid_t child = fork();
  if (child == 0) {
    auto refused = [](const std::function<void()>& use) {
      return contains(message_of(use), "use the spawn start method");
    };
    bool right = refused([&] { download(*buffer); }) && refused([] { upload({1}); }) &&
                 refused([&] { executable->execute({buffer.get()}, {false}, 0); }) &&
                 refused([] { pjrt::client(); });
    buffer = nullptr;
    executable = nullptr;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(download(*buffer)[0], 1);
}

// [4, 3] over two devices by rows: doubled, by columns, and negated, as the compiler likes.
TEST_F(PluginTest, RunsOnePartitionedProgramOnAllDevices) {
  const std::string type = "tensor<4x3xf32>";
  const std::string text =
      "module @test attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {"
      " func.func @main(%a: " +
      type + " {mhlo.sharding = \"{devices=[2,1]0,1}\"}) -> (" + type +
      " {mhlo.sharding = \"{devices=[1,2]0,1}\"}, " + type +
      ") {"
      " %0 = stablehlo.add %a, %a : " +
      type + " %1 = stablehlo.negate %a : " + type + " return %0, %1 : " + type + ", " + type +
      " } }";
  CompileOptions options;
  options.partitions = 2;
  options.spmd = true;
  options.free_outputs = {false, true};
  TensorType whole{DType::Float, {4, 3}};
  ExecutablePtr executable = compile(text, {whole, whole}, options);
  std::vector<float> values(12);
  std::iota(values.begin(), values.end(), 1.0f);
  ShardingPtr rows = Sharding::parse("{devices=[2,1]0,1}");
  BufferPtr input = scatter_from_host(client(), values.data(), whole, rows, nullptr);
  auto outputs = executable->execute({input.get()}, {false}, 0);
  EXPECT_EQ(outputs[0]->sharding(), Sharding::parse("{devices=[1,2]0,1}"));
  EXPECT_EQ(outputs[1]->sharding(), rows);
  std::vector<float> doubled = download(*outputs[0]), negated = download(*outputs[1]);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(doubled[i], 2 * values[i]);
    EXPECT_EQ(negated[i], -values[i]);
  }
  const auto& pieces = static_cast<ShardedBuffer&>(*outputs[0]).pieces();
  EXPECT_EQ(pieces[1]->type().dims, (Dims{4, 2}));  // 3 columns, rounded up
  EXPECT_EQ(pieces[1]->device(), 1);
  EXPECT_TRUE(contains(message_of([&] { outputs[0]->copy_to_device(0); }), "lies on all devices"));
}

}  // namespace
}  // namespace torch_xla::pjrt
