// The worker's metrics over real streams: each of them is there, and moves when what it counts
// happens.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "services/worker/worker_metrics.h"
#include "tests/services/worker/decode_client.h"
#include "tests/services/worker/live_worker.h"
#include "tests/support/exposition.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;
using test::DecodeClient;
using test::LiveWorker;
using test::Samples;
using testing::HasSubstr;

const std::vector<int32_t> kPrompt = {5, 70, 71, 72, 73, 74, 75};

// So many tokens, none like the one before it.
std::vector<int32_t> LongPrompt(int32_t length, int32_t seed) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < length; ++i) out.push_back(70 + (i * 7 + seed * 13 + i * i) % 100);
  return out;
}

bool Eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class WorkerMetricsTest : public testing::Test {
 protected:
  std::string Text() const { return worker_->metrics_text(); }
  double Value(const std::string& series) const {
    const Samples samples = test::ParseExposition(Text());
    const auto found = samples.find("tandem_worker_" + series);
    EXPECT_NE(found, samples.end()) << series;
    return found == samples.end() ? -1.0 : found->second;
  }
  bool Becomes(const std::string& series, double value) const {
    const bool became = Eventually([&] { return Value(series) == value; });
    EXPECT_TRUE(became) << series << " is " << Value(series) << ", not " << value;
    return became;
  }
  void Start(const LiveWorker::Options& options) {
    worker_ = std::make_unique<LiveWorker>(options);
  }

  std::unique_ptr<LiveWorker> worker_;
};

TEST_F(WorkerMetricsTest, AreAllThereAlsoBeforeTheModelIsLoaded) {
  Start({.load = false});
  const auto check = [&](const std::string& text) {
    std::set<std::string> sampled;
    for (const auto& [series, value] : test::ParseExposition(text)) {
      sampled.insert(test::MetricOf(text, series));
    }
    for (const MetricSpec& spec : WorkerMetricTable()) {
      const std::string name(spec.name);
      EXPECT_THAT(text, HasSubstr("# HELP " + name + " " + std::string(spec.help) + "\n"));
      EXPECT_THAT(text, HasSubstr("# TYPE " + name + " "));
      EXPECT_EQ(sampled.count(name), 1u) << name << " has no sample";
      EXPECT_EQ(name.rfind("tandem_worker_", 0), 0u) << name;
    }
    EXPECT_EQ(sampled.size(), WorkerMetricTable().size());
  };
  check(Text());
  ASSERT_TRUE(worker_->Load().ok());
  check(Text());
  EXPECT_THAT(Text(), HasSubstr("device_kind=\"cpu\"} 1\n"));
}

TEST_F(WorkerMetricsTest, PromtoolHasNothingToSayAfterARun) {
  Start({});
  DecodeClient client(worker_->address());
  EXPECT_EQ(client.Generate(1, kPrompt, 20).size(), 20u);
  client.AddClose(1);
  client.Send();
  ASSERT_TRUE(Becomes("closed_sessions_total{reason=\"done\"}", 1));
  const std::string complaint = test::CheckWithPromtool(Text());
  if (complaint == "skip") GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(complaint, "");
}

TEST_F(WorkerMetricsTest, CountASessionByWhatItWas) {
  Start({});
  {
    DecodeClient client(worker_->address());
    EXPECT_EQ(client.Generate(1, kPrompt, 20).size(), 20u);
    ASSERT_TRUE(Becomes("sessions_running", 1));
    EXPECT_EQ(Value("streams"), 1);
    EXPECT_EQ(Value("opened_sessions_total"), 1);
    // Counts follow the events that they are of.
    EXPECT_TRUE(Eventually([&] { return Value("candidates_total") >= 20; }));
    EXPECT_EQ(Value("prefilled_tokens_total"), static_cast<double>(kPrompt.size()));
    // It runs ahead for some more steps, and each Value is of a moment of its own.
    EXPECT_TRUE(Eventually([&] {
      const double steps = Value("steps_total");
      return steps >= 20 && Value("step_seconds_count") == steps &&
             Value("step_rows_count{kind=\"decode\"}") == steps;
    }));
    EXPECT_GE(Value("step_rows_sum{kind=\"prefill\"}"), static_cast<double>(kPrompt.size()) - 1);
    EXPECT_GT(Value("busy_seconds_total"), 0);
    EXPECT_LE(Value("free_pages"), Value("pages") - 1);
    client.AddFetchRow(1, static_cast<int32_t>(kPrompt.size()) + 10);
    ASSERT_TRUE(client.Send());
    EXPECT_FALSE(client.ReadRow(1).empty());
    EXPECT_EQ(Value("fetches_total{what=\"row\"}"), 1);
  }
  ASSERT_TRUE(Becomes("closed_sessions_total{reason=\"stream_ended\"}", 1));
  ASSERT_TRUE(Becomes("streams", 0));
  EXPECT_EQ(Value("sessions_running"), 0);
  EXPECT_EQ(Value("step_rows_limit"), 64);
  EXPECT_GT(Value("device_memory_bytes{kind=\"weights\"}"), 0);
  EXPECT_GT(Value("device_memory_bytes{kind=\"kv_pages\"}"), 0);
}

TEST_F(WorkerMetricsTest, CountWhatIsRefusedBeforeTheEngineAndInIt) {
  Start({});
  DecodeClient client(worker_->address());
  client.AddOpen(1, kPrompt)->set_run_ahead(99);
  client.AddOpen(2, {1 << 20});
  ASSERT_TRUE(client.Send());
  ASSERT_TRUE(client.ReadClosed(1).has_value());
  ASSERT_TRUE(client.ReadClosed(2).has_value());
  EXPECT_TRUE(Becomes("closed_sessions_total{reason=\"refused\"}", 2));
  EXPECT_EQ(Value("opened_sessions_total"), 0);
}

TEST_F(WorkerMetricsTest, B051_AValueThatIsNotFiniteIsCountedAndTheLogNamesItsRequest) {
  Start({.nan_token = 90});
  DecodeClient client(worker_->address());
  testing::internal::CaptureStderr();
  client.AddOpen(1, {5, 90})->set_request_id("r 7\n");
  ASSERT_TRUE(client.Send());
  const auto closed = client.ReadEvent([](const pb::Event& event) { return event.has_closed(); });
  const bool counted = Becomes("closed_sessions_total{reason=\"non_finite\"}", 1);
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(closed.has_value());
  EXPECT_TRUE(counted);
  EXPECT_THAT(log, HasSubstr(" error: session_closed request_id=\"r 7\\x0a\" stream="));
  EXPECT_THAT(log, HasSubstr(" reason=non_finite detail="));
}

TEST_F(WorkerMetricsTest, EachOfThemMoves) {
  Start({.engine = {.max_sessions = 2,
                    .max_queued = 8,
                    .step_tokens = 16,
                    .kv_tokens = 640,
                    .context_length = 512,
                    .ahead_tokens = 1,
                    .drain_spread = 0},
         .load = false});
  std::set<std::string> moved;
  const auto during = [&](const std::function<void()>& happen) {
    const std::string before = Text();
    happen();
    moved.merge(test::Moved(before, Text()));
  };
  during([&] { ASSERT_TRUE(worker_->Load().ok()); });
  std::optional<DecodeClient> stream;
  during([&] {
    stream.emplace(worker_->address());
    ASSERT_TRUE(Becomes("streams", 1));
  });
  DecodeClient& client = *stream;
  // A device that stands still, so that what waits can be seen.
  during([&] {
    worker_->switches().Hold();
    client.AddOpen(1, LongPrompt(200, 1));
    client.AddOpen(2, LongPrompt(60, 2));
    client.AddOpen(3, kPrompt);
    ASSERT_TRUE(client.Send());
    ASSERT_TRUE(Becomes("sessions_running", 2)) << "admitted before the step that stands still";
    ASSERT_TRUE(Becomes("sessions_queued", 1));
  });
  during([&] {
    worker_->switches().Release();
    std::set<uint64_t> begun;
    while (begun.size() < 2) {
      const auto event = client.ReadEvent([](const pb::Event& e) { return e.has_candidates(); });
      ASSERT_TRUE(event.has_value());
      begun.insert(event->candidates().handle());
    }
  });
  during([&] {
    client.AddClose(1);
    client.AddClose(2);
    client.AddClose(3);
    ASSERT_TRUE(client.Send());
    ASSERT_TRUE(Becomes("sessions_running", 0));
    ASSERT_TRUE(Becomes("closed_sessions_total{reason=\"done\"}", 3));
  });
  // The same prompt again, a cut and a fetch.
  during([&] {
    const std::vector<int32_t> prompt = LongPrompt(200, 1);
    client.AddOpen(4, prompt);
    ASSERT_TRUE(client.Send());
    const auto candidates = client.ReadEvent([](const pb::Event& event) {
      return event.has_candidates() && event.candidates().handle() == 4;
    });
    ASSERT_TRUE(candidates.has_value());
    const auto drawn = static_cast<int32_t>(candidates->candidates().drawn());
    client.AddExtend(4, static_cast<int32_t>(prompt.size()), 1, {drawn == 80 ? 81 : 80});
    ASSERT_TRUE(client.Send());
    ASSERT_TRUE(Becomes("cuts_total", 1));
    client.AddFetchRow(4, static_cast<int32_t>(prompt.size()));
    ASSERT_TRUE(client.Send());
    EXPECT_FALSE(client.ReadRow(4).empty());
    client.AddClose(4);
    ASSERT_TRUE(client.Send());
  });
  // A text that repeats itself is guessed.
  during([&] {
    std::vector<int32_t> prompt;
    for (int i = 0; i < 12; ++i) prompt.insert(prompt.end(), kPrompt.begin(), kPrompt.end());
    // Which guesses come true is the model's affair, and how often it is tried that of the clock.
    for (uint64_t handle = 5; Value("taken_drafts_total") == 0; ++handle) {
      ASSERT_LT(handle, 100u);
      pb::Open* const open = client.AddOpen(handle, prompt);
      open->set_drafts(4);
      open->set_run_ahead(8);
      open->set_max_new(300);
      ASSERT_TRUE(client.Send());
      int32_t position = static_cast<int32_t>(prompt.size());
      while (Value("taken_drafts_total") == 0 && position < 380) {
        const auto event = client.ReadEvent([handle](const pb::Event& e) {
          return e.has_candidates() && e.candidates().handle() == handle;
        });
        ASSERT_TRUE(event.has_value());
        client.AddExtend(handle, position, 0, {static_cast<int32_t>(event->candidates().drawn())});
        ++position;
        ASSERT_TRUE(client.Send());
      }
      client.AddClose(handle);
      ASSERT_TRUE(client.Send());
      ASSERT_TRUE(Becomes("sessions_running", 0));
    }
  });
  // More prompts than the pages hold: earlier ones make room.
  during([&] {
    for (uint64_t handle = 100; Value("evicted_pages_total") == 0; ++handle) {
      ASSERT_LT(handle, 120u);
      client.AddOpen(handle, LongPrompt(200, static_cast<int32_t>(handle)));
      ASSERT_TRUE(client.Send());
      ASSERT_TRUE(client
                      .ReadEvent([handle](const pb::Event& e) {
                        return e.has_candidates() && e.candidates().handle() == handle;
                      })
                      .has_value());
      client.AddClose(handle);
      ASSERT_TRUE(client.Send());
      ASSERT_TRUE(Becomes("sessions_running", 0));
    }
  });
  // Two that grow into more pages than there are.
  during([&] {
    for (const uint64_t handle : {206, 207}) {
      pb::Open* const open =
          client.AddOpen(handle, LongPrompt(310, static_cast<int32_t>(handle) - 200));
      open->clear_max_new();
      open->set_run_ahead(8);
    }
    ASSERT_TRUE(client.Send());
    while (Value("preempted_sessions_total") == 0) {
      const auto event =
          client.ReadEvent([](const pb::Event& e) { return e.has_candidates() || e.has_closed(); });
      ASSERT_TRUE(event.has_value());
      if (event->has_closed()) continue;
      const pb::Candidates& candidates = event->candidates();
      client.AddExtend(candidates.handle(), candidates.position(), 0,
                       {static_cast<int32_t>(candidates.drawn())});
      ASSERT_TRUE(client.Send());
    }
  });
  for (const MetricSpec& spec : WorkerMetricTable()) {
    const std::string name(spec.name);
    EXPECT_EQ(moved.count(name), 1u) << name << " did not move";
  }
}

TEST(WorkerStatus, SaysHowItGoesAndNothingWhereNothingRuns) {
  WorkerSnapshot earlier, now;
  testing::internal::CaptureStderr();
  LogStatus(now, earlier, 10);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  now.load = {.running = 12, .queued = 3, .free_pages = 61, .total_pages = 100};
  now.counts.candidates = 12'040;
  now.counts.steps = 830;
  now.counts.step_seconds.Observe(0.0075, 830);
  testing::internal::CaptureStderr();
  LogStatus(now, earlier, 10);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("info: 12 running, 3 queued, 1,204 tok/s, 83 steps/s, step 7.5 ms "
                        "(median), pages 61 % free\n"));
}

TEST(SessionEnds, B177_NameTheRequestOnOneLine) {
  SessionEnds ends;
  ClosedEvent event{.handle = {1, 7},
                    .reason = ClosedEvent::Reason::kNonFinite,
                    .detail = "logit\n",
                    .request_id = "a\r\n2026-01-01T00:00:00Z forged"};
  testing::internal::CaptureStderr();
  ends.OnClosed(event);
  event.reason = ClosedEvent::Reason::kRefused;
  ends.OnClosed(event);
  const std::string quiet = testing::internal::GetCapturedStderr();
  EXPECT_THAT(quiet, HasSubstr(" error: session_closed "
                               "request_id=\"a\\x0d\\x0a2026-01-01T00:00:00Z forged\" stream=1 "
                               "handle=7 reason=non_finite detail=logit\\x0a\n"));
  EXPECT_EQ(std::count(quiet.begin(), quiet.end(), '\n'), 1) << "a refusal is no fault of ours";
  ends.SetLogAll(true);
  testing::internal::CaptureStderr();
  ends.OnClosed(event);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("reason=refused"));
  EXPECT_EQ(ends.counts()[static_cast<size_t>(ClosedEvent::Reason::kRefused)], 2);
}

}  // namespace
}  // namespace tandem
