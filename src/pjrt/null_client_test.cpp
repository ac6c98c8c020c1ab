#include "pjrt/null_client.h"

#include "base/error.h"
#include "pjrt/live_buffers.h"

#include <gtest/gtest.h>

namespace torch_xla::pjrt {
namespace {

TEST(NullClientTest, KeepsWhatIsUploadedAndComputesZeros) {
  auto client = make_null_client(2);
  EXPECT_EQ(client->device_count(), 2);
  const int32_t values[] = {1, 2};
  TensorType type{DType::Int, {2}};
  BufferPtr buffer = client->buffer_from_host(values, type, 1, nullptr)->copy_to_device(0);
  int32_t back[2] = {};
  buffer->copy_to_host(back, sizeof(back));
  EXPECT_EQ(back[1], 2);

  auto executable = client->compile("no program", {}, {type, {DType::Float, {0}}});
  auto outputs = executable->execute({buffer.get()}, {true}, 1);
  outputs[0]->copy_to_host(back, sizeof(back));
  EXPECT_EQ(back[1], 0);
  EXPECT_EQ(outputs[1]->nbytes(), 0);
  EXPECT_TRUE(buffer->is_deleted());
  EXPECT_THROW(buffer->copy_to_host(back, sizeof(back)), Error);
  EXPECT_THROW(client->buffer_from_host(values, type, 2, nullptr), Error);
}

TEST(NullClientTest, CountsItsBuffers) {
  auto client = make_null_client(1);
  device_memory(0).reset_peak();
  const int64_t count = live_buffer_count();
  BufferPtr buffer = client->buffer_from_host(nullptr, {DType::Double, {10}}, 0, nullptr);
  EXPECT_EQ(live_buffer_count(), count + 1);
  EXPECT_EQ(client->memory_stats(0).bytes_in_use, 80);
  buffer = nullptr;
  EXPECT_EQ(live_buffer_count(), count);
  EXPECT_EQ(client->memory_stats(0).bytes_in_use, 0);
  EXPECT_EQ(client->memory_stats(0).peak_bytes, 80);
  device_memory(0).reset_peak();
  EXPECT_EQ(client->memory_stats(0).peak_bytes, 0);
}

}  // namespace
}  // namespace torch_xla::pjrt
