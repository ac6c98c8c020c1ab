#include "timeline/timeline.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace torch_xla::timeline {
namespace {

const Track* find(const Recording& recording, const std::string& name) {
  for (const Track& track : recording.tracks) {
    if (track.name == name) {
      return &track;
    }
  }
  return nullptr;
}

TEST(Timeline, KeepsNothingWhileOff) {
  { Scope span(Kind::Compile, "before"); }
  start();
  Recording recording = stop();
  { Scope span(Kind::Compile, "after"); }
  ASSERT_EQ(recording.tracks.size(), 1u);
  EXPECT_TRUE(recording.tracks[0].spans.empty());
}

TEST(Timeline, SpansHaveKindNameAndOrder) {
  start();
  { Scope span(Kind::Lower, "step"); }
  { Scope span(Kind::Upload, {}, 64); }
  Recording recording = stop();
  const std::vector<Span>& spans = recording.tracks.at(0).spans;
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(recording.names[spans[0].name], "step");
  EXPECT_EQ(spans[1].amount, 64);
  EXPECT_LE(spans[0].end, spans[1].start);
  EXPECT_LE(spans[1].end, recording.duration);
}

TEST(Timeline, OperatorsOnOneLineBecomeOneSpan) {
  std::vector<Span> spans;
  // A busy machine may pause this thread between two operators: then that is a gap, too.
  for (int attempt = 0; attempt < 50 && spans.size() != 2; ++attempt) {
    start();
    for (int i = 0; i < 3; ++i) {
      Scope span(Kind::Trace);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    { Scope span(Kind::Trace); }
    spans = stop().tracks.at(0).spans;
  }
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].amount, 3);
  EXPECT_EQ(spans[1].amount, 1);
}

TEST(Timeline, AnOperatorThatRecordsOthersCountsThem) {
  start();
  {
    Scope outer(Kind::Trace);
    { Scope inner(Kind::Trace); }
    { Scope inner(Kind::Trace); }
  }
  Recording recording = stop();
  ASSERT_EQ(recording.tracks.at(0).spans.size(), 1u);
  EXPECT_EQ(recording.tracks[0].spans[0].amount, 3);
}

TEST(Timeline, ThreadsAndDevicesHaveTracks) {
  start();
  std::thread([] { Scope span(Kind::Launch, "other"); }).join();
  const Launch first = begin_launch(1, "first");
  const Launch second = begin_launch(1, "second");
  note_ready(first);
  note_ready(second);
  Recording recording = stop();
  const Track* device = find(recording, "device xla:1");
  ASSERT_NE(device, nullptr);
  EXPECT_TRUE(device->device);
  EXPECT_EQ(device->spans.at(1).start, device->spans.at(0).end);  // one after the other
  EXPECT_EQ(recording.tracks.size(), 3u);
}

TEST(Timeline, WaitsForProgramsThatAreRunning) {
  start();
  const Launch launch = begin_launch(0, "slow");
  std::thread device([&launch] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    note_ready(launch);
  });
  Recording recording = stop();
  device.join();
  ASSERT_NE(find(recording, "device xla:0"), nullptr);
  EXPECT_EQ(recording.tracks[0].spans.at(0).kind, Kind::Wait);
}

TEST(Timeline, SpansAreNamedInTheirOwnRecording) {
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&done] {
      for (int i = 0; !done; ++i) {
        Scope span(Kind::Compile, std::string_view("abcdefgh").substr(static_cast<size_t>(i) % 8));
      }
    });
  }
  size_t unnamed = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < end) {
    start();
    const Recording recording = stop();
    for (const Track& track : recording.tracks) {
      for (const Span& span : track.spans) {
        unnamed += span.name >= recording.names.size() ? 1 : 0;
      }
    }
  }
  done = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(unnamed, 0u);
}

TEST(Timeline, OneAtATime) {
  start();
  EXPECT_THROW(start(), Error);
  stop();
}

}  // namespace
}  // namespace torch_xla::timeline
