#include "metrics/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace torch_xla::metrics {
namespace {

using testing::Test;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Metrics : public Test {
 protected:
  void SetUp() override {
    clear_counters();
    clear_metrics();
  }
};

TEST_F(Metrics, CountersAppearOnceTheyCount) {
  Counter& counter = metrics::counter("Apples");
  EXPECT_FALSE(contains(counter_names(), "Apples"));
  counter.add();
  counter.add(2);
  bool found = false;
  EXPECT_EQ(counter_value("Apples", &found), 3);
  EXPECT_TRUE(found);
  EXPECT_TRUE(contains(counter_names(), "Apples"));
  EXPECT_EQ(&counter, &metrics::counter("Apples"));
}

TEST_F(Metrics, UnknownNamesAreNotFound) {
  bool found = true;
  EXPECT_EQ(counter_value("Unknown", &found), 0);
  EXPECT_FALSE(found);
  found = true;
  EXPECT_EQ(metric_data("Unknown", &found).count, 0);
  EXPECT_FALSE(found);
}

TEST_F(Metrics, ClearingKeepsReferencesValid) {
  Counter& counter = metrics::counter("Apples");
  counter.add();
  clear_counters();
  EXPECT_FALSE(contains(counter_names(), "Apples"));
  counter.add();
  EXPECT_EQ(counter_value("Apples"), 1);
}

TEST_F(Metrics, OfManyAllAreCountedAndSomeAreTimed) {
  Metric& metric = metrics::metric("Calls");
  for (int i = 0; i < 1000; ++i) {
    TimedNowAndThen timed(metric);
  }
  const MetricData data = metric_data("Calls");
  EXPECT_EQ(data.count, 1000);
  EXPECT_EQ(data.samples.size(), 256u + 47u);  // and one in 16 of the others
  EXPECT_GT(data.total, 0);
}

TEST_F(Metrics, SamplesAreBoundedAndTotalsAreNot) {
  Metric& metric = metrics::metric("Lengths", Unit::Number);
  for (int i = 0; i < 3000; ++i) {
    metric.add(i);
  }
  const MetricData data = metric_data("Lengths");
  EXPECT_EQ(data.count, 3000);
  EXPECT_EQ(data.total, 3000.0 * 2999 / 2);
  EXPECT_LT(data.samples.size(), 3000u);
  EXPECT_EQ(data.samples.back().second, 2999);
}

TEST_F(Metrics, TheTableDecidesTheUnit) {
  metrics::metric("InboundData").add(2048);
  EXPECT_EQ(metric_data("InboundData").unit, Unit::Bytes);
  EXPECT_NE(report().find("Accumulator: 2.00KB"), std::string::npos) << report();
}

TEST_F(Metrics, DurationsStartAtTheLargestUnit) {
  metrics::metric("CompileTime").add(369'401'746'001.0);
  metrics::metric("ExecuteTime").add(1'032'778.0);
  const std::string text = report();
  EXPECT_NE(text.find("Accumulator: 06m09s401ms746.001us"), std::string::npos) << text;
  EXPECT_NE(text.find("Accumulator: 001ms32.778us"), std::string::npos) << text;
}

TEST_F(Metrics, ReportHasTheFormatUsersKnow) {
  metrics::counter("CachedCompile").add(7);
  Metric& metric = metrics::metric("Lengths", Unit::Number);
  for (int i = 1; i <= 100; ++i) {
    metric.add(i);
  }
  const std::string text = report();
  EXPECT_NE(text.find("Metric: Lengths\n  TotalSamples: 100\n  Accumulator: 5050.00\n"),
            std::string::npos);
  EXPECT_NE(text.find("Percentiles: 1%=2.00; 5%=6.00;"), std::string::npos) << text;
  EXPECT_NE(text.find("50%=51.00"), std::string::npos) << text;
  EXPECT_NE(text.find("Counter: CachedCompile\n  Value: 7\n"), std::string::npos);
  EXPECT_EQ(report(false).find("Percentiles"), std::string::npos);
}

TEST_F(Metrics, ShortReportShowsWhatIsNamedOrTelling) {
  metrics::counter("CachedCompile").add();
  metrics::counter("xla::cos").add();
  metrics::counter("aten::eig").add();
  metrics::metric("ExecuteTime").add(1);
  metrics::metric("LowerTime").add(1);
  const std::string telling = short_report({}, {});
  EXPECT_NE(telling.find("CachedCompile"), std::string::npos);
  EXPECT_NE(telling.find("aten::eig"), std::string::npos);
  EXPECT_NE(telling.find("ExecuteTime"), std::string::npos);
  EXPECT_EQ(telling.find("xla::cos"), std::string::npos);
  EXPECT_EQ(telling.find("LowerTime"), std::string::npos);
  const std::string chosen = short_report({"xla::cos"}, {"LowerTime"});
  for (const char* name : {"xla::cos", "aten::eig", "LowerTime"}) {
    EXPECT_NE(chosen.find(name), std::string::npos);
  }
  for (const char* name : {"CachedCompile", "ExecuteTime"}) {
    EXPECT_EQ(chosen.find(name), std::string::npos);
  }
  EXPECT_NE(short_report({"xla::cos"}, {}).find("ExecuteTime"), std::string::npos);
}

TEST_F(Metrics, TimedAddsItsLife) {
  {
    Timed timed(metrics::metric("ExecuteTime"));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(metric_data("ExecuteTime").count, 1);
  EXPECT_GE(metric_data("ExecuteTime").total, 2e6);
}

TEST_F(Metrics, ThreadsMayCountTogether) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 1000; ++j) {
        metrics::counter("Apples").add();
        metrics::metric("Lengths", Unit::Number).add(1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(counter_value("Apples"), 4000);
  EXPECT_EQ(metric_data("Lengths").count, 4000);
}

TEST_F(Metrics, PageListsTheTable) {
  const std::string page = markdown();
  EXPECT_NE(page.find("| `ExecuteTime` | Nanoseconds |"), std::string::npos);
  EXPECT_NE(page.find("| `CachedCompile` |"), std::string::npos);
}

}  // namespace
}  // namespace torch_xla::metrics
