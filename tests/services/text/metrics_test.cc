// The text tier's metrics over real calls: each of them is there, and moves when what it counts
// happens.
#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/common/logging.h"
#include "services/text/text_metrics.h"
#include "tests/services/text/service_fixture.h"
#include "tests/support/exposition.h"
#include "tests/support/raw_client.h"

namespace tandem::text {
namespace {

using std::chrono::milliseconds;
using test::Samples;
using test::ScriptedWorker;
using test::ScriptedWorkerOptions;
using testing::HasSubstr;

class MetricsTest : public ServiceTest {
 protected:
  MetricsTest() { options_.shards = 2; }
  static ScriptedWorkerOptions Long() {
    ScriptedWorkerOptions options;
    options.decoder.context_length = 100'000;
    options.decoder.cached_tokens = 1;
    options.load.set_queued(2);
    options.load.set_free_pages(60);
    options.load.set_total_pages(100);
    options.load.set_cached_pages(7);
    return options;
  }
  static ScriptedWorkerOptions Paced() {
    ScriptedWorkerOptions options = Long();
    options.step_time = milliseconds(5);
    return options;
  }
  // Every fifth draw is another one; or, once `faulty` is set, every fifth list has a wrong entry,
  // after which rows are fetched.
  ScriptedWorkerOptions Lying() {
    ScriptedWorkerOptions options = Long();
    options.decoder.tamper = [lies = lies_](decode::v1::Candidates* message) {
      if (++lies->sent % 5 != 0) return;
      if (lies->faulty) {
        auto* adjusted = message->mutable_lists()->mutable_top_adjusted();
        adjusted->Set(1, adjusted->Get(1) + 0.125f);
      } else if (message->has_drawn()) {
        message->set_drawn((message->drawn() + 1) % 256);
      }
    };
    return options;
  }
  // The worker's stream ends, and the next one is of a worker with these options.
  bool Reconnect(ScriptedWorker& worker, const ScriptedWorkerOptions& options) {
    const int64_t streams = worker.totals().streams;
    worker.SetOptions(options);
    worker.DropStreams();
    return Eventually([&] { return worker.totals().streams > streams && server_->serving(); });
  }
  Samples Scrape() const { return test::ParseExposition(server_->MetricsText()); }
  double Value(const std::string& series) const {
    const Samples samples = Scrape();
    const auto found = samples.find("tandem_text_" + series);
    EXPECT_NE(found, samples.end()) << series;
    return found == samples.end() ? -1.0 : found->second;
  }
  bool Becomes(const std::string& series, double value) {
    const bool became = Eventually([&] { return Value(series) == value; });
    EXPECT_TRUE(became) << series << " is " << Value(series) << ", not " << value;
    return became;
  }
  // Runs `happen` and adds the metrics that moved from before it to after it.
  void During(const std::function<void()>& happen) {
    const std::string before = server_->MetricsText();
    happen();
    moved_.merge(test::Moved(before, server_->MetricsText()));
  }

  // A generation that runs until stop_ is set.
  std::future<Answer> AskForLong() {
    stop_ = false;
    return std::async(std::launch::async, [this] {
      return Ask(Prompt("go", 90'000), [this](grpc::ClientContext& context, const auto&) {
        if (stop_) context.TryCancel();
      });
    });
  }

  std::set<std::string> moved_;
  std::atomic<bool> stop_ = false;
  struct Lies {
    std::atomic<int> sent = 0;
    std::atomic<bool> faulty = false;
  };
  const std::shared_ptr<Lies> lies_ = std::make_shared<Lies>();  // the worker's, too
};

TEST_F(MetricsTest, AreAllThereBeforeAnythingHappensAndPromtoolHasNothingToSay) {
  AddWorker(Long());
  Serve();
  const std::string text = server_->MetricsText();
  std::set<std::string> sampled;
  for (const auto& [series, value] : test::ParseExposition(text)) {
    sampled.insert(test::MetricOf(text, series));
  }
  for (const MetricSpec& spec : TextMetricTable()) {
    const std::string name(spec.name);
    EXPECT_THAT(text, HasSubstr("# HELP " + name + " " + std::string(spec.help) + "\n"));
    EXPECT_THAT(text, HasSubstr("# TYPE " + name + " "));
    EXPECT_EQ(sampled.count(name), 1u) << name << " has no sample";
    EXPECT_EQ(name.rfind("tandem_text_", 0), 0u) << name;
  }
  EXPECT_EQ(sampled.size(), TextMetricTable().size());
  const std::string complaint = test::CheckWithPromtool(text);
  if (complaint == "skip") GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(complaint, "");
}

TEST_F(MetricsTest, PromtoolHasNothingToSayAfterARun) {
  AddWorker(Long());
  Serve();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Ask(Prompt("go", 20)).status.ok());
  ASSERT_TRUE(Becomes("requests_total{door=\"grpc\",status=\"OK\"}", 5));
  const std::string complaint = test::CheckWithPromtool(server_->MetricsText());
  if (complaint == "skip") GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(complaint, "");
}

TEST_F(MetricsTest, CountAGenerationByWhatItWas) {
  AddWorker(Long());
  Serve();
  v1::GenerateRequest request = Prompt("hello", 20);
  request.mutable_sampling()->set_n(2);
  ASSERT_TRUE(Ask(request).status.ok());
  ASSERT_TRUE(Becomes("requests_total{door=\"grpc\",status=\"OK\"}", 1));
  EXPECT_EQ(Value("choices_total{finish=\"max_tokens\"}"), 2);
  EXPECT_EQ(Value("output_tokens_total{decided_from=\"lists\"}"), 40);
  EXPECT_EQ(Value("confirmed_draws_total"), 40) << "the worker had drawn each of them";
  EXPECT_EQ(Value("prompt_tokens_total"), 1) << "\"hello\" is one token";
  EXPECT_EQ(Value("cached_prompt_tokens_total"), 1);
  EXPECT_EQ(Value("queue_seconds_count"), 1);
  EXPECT_EQ(Value("time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(Value("inter_token_seconds_count"), 38);
  EXPECT_EQ(Value("request_seconds_count"), 1);
  EXPECT_GT(Value("decide_seconds_count"), 0);
  EXPECT_EQ(Value("requests_running"), 0);
  EXPECT_EQ(Value("requests_waiting"), 0);
  EXPECT_EQ(Value("misses_total") + Value("faults_total") + Value("rewinds_total"), 0);
}

TEST_F(MetricsTest, CountWhatIsRefusedByReason) {
  options_.max_requests = 1;
  ScriptedWorker& worker = AddWorker(Paced());
  worker.Kill();
  StartServer();
  // A call counts until gRPC is done with it, which is after its client is.
  const auto wait_for_room = [this] {
    return Eventually([this] { return server_->active() == 0; });
  };
  Ask(Prompt("x", 1));
  EXPECT_EQ(Value("refused_requests_total{door=\"grpc\",reason=\"no_worker\"}"), 1);
  EXPECT_EQ(Value("requests_total{door=\"grpc\",status=\"UNAVAILABLE\"}"), 1);
  worker.Start();
  ASSERT_TRUE(Eventually([this] { return server_->serving(); }));
  v1::GenerateRequest bad = Prompt("x", 1);
  bad.mutable_sampling()->set_n(99);
  ASSERT_TRUE(wait_for_room());
  Ask(bad);
  EXPECT_EQ(Value("refused_requests_total{door=\"grpc\",reason=\"invalid\"}"), 1);
  bad = Prompt("x", 1);
  bad.set_model("no such model");
  ASSERT_TRUE(wait_for_room());
  Ask(bad);
  EXPECT_EQ(Value("refused_requests_total{door=\"grpc\",reason=\"no_model\"}"), 1);
  ASSERT_TRUE(wait_for_room());
  std::future<Answer> running = AskForLong();
  ASSERT_TRUE(Becomes("requests_running", 1));
  Ask(Prompt("x", 1));
  EXPECT_EQ(Value("refused_requests_total{door=\"grpc\",reason=\"too_many\"}"), 1);
  EXPECT_EQ(Value("requests_total{door=\"grpc\",status=\"RESOURCE_EXHAUSTED\"}"), 1);
  std::thread drain([this] { server_->Drain(kPatience); });
  EXPECT_TRUE(Eventually([this] {
    Ask(Prompt("x", 1), nullptr, milliseconds(500));
    return Value("refused_requests_total{door=\"grpc\",reason=\"draining\"}") > 0;
  }));
  stop_ = true;
  drain.join();
  running.get();
  EXPECT_EQ(Value("requests_running"), 0);
}

TEST_F(MetricsTest, FollowTheStatesOfWorkers) {
  options_.worker_silence = milliseconds(1000);
  ScriptedWorker& first = AddWorker(Long());
  AddWorker(Long());
  Serve();
  ASSERT_TRUE(Becomes("workers{state=\"ready\"}", 2));
  const std::string label = "{worker=\"" + first.address() + "\"}";
  ASSERT_TRUE(Becomes("worker_free_pages" + label, 60));
  EXPECT_EQ(Value("worker_pages" + label), 100);
  EXPECT_EQ(Value("worker_cached_pages" + label), 7);
  EXPECT_EQ(Value("worker_sessions_queued" + label), 2);
  first.SetSilent(true);
  ASSERT_TRUE(Becomes("workers{state=\"suspect\"}", 1));
  ASSERT_TRUE(Becomes("workers{state=\"lost\"}", 1));
  EXPECT_EQ(Scrape().count("tandem_text_worker_pages" + label), 0u) << "nobody knows";
  first.SetSilent(false);
  ASSERT_TRUE(Becomes("workers{state=\"ready\"}", 2));
}

TEST_F(MetricsTest, CountWorkersThatAreWrong) {
  AddWorker(Lying());
  Serve();
  Ask(Prompt("go", 20));
  EXPECT_TRUE(Eventually([&] { return Value("misses_total") > 0; }));
  EXPECT_GT(Value("rewinds_total"), 0);
  lies_->faulty = true;
  Ask(Prompt("go", 20));
  EXPECT_TRUE(Eventually([&] { return Value("faults_total") > 0; }));
  EXPECT_GT(Value("output_tokens_total{decided_from=\"fetched\"}"), 0);
  EXPECT_GT(Value("fetch_seconds_count"), 0);
}

TEST_F(MetricsTest, CountChoicesThatAreOpenedAgainByReason) {
  ScriptedWorker& first = AddWorker(Paced());
  Serve();
  std::future<Answer> running = AskForLong();
  ASSERT_TRUE(Eventually([&] { return first.totals().extends > 2; }));
  first.DropStreams();
  ASSERT_TRUE(Becomes("reopened_choices_total{reason=\"lost\",numerics=\"identical\"}", 1));
  ASSERT_TRUE(Eventually([&] { return first.totals().live == 1; }));
  first.Drain();
  EXPECT_TRUE(Eventually([&] { return Value("workers{state=\"draining\"}") == 1; }));
  first.Kill();
  ScriptedWorkerOptions other = Paced();
  other.tamper_hello = [](auto* hello) { hello->set_numerics_fingerprint(std::string(32, 'c')); };
  first.SetOptions(other);
  first.Start();
  ASSERT_TRUE(Becomes("reopened_choices_total{reason=\"draining\",numerics=\"approximate\"}", 1));
  stop_ = true;
  EXPECT_EQ(running.get().status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(MetricsTest, EachOfThemMoves) {
  ScriptedWorker& worker = AddWorker(Paced());
  worker.Kill();
  options_.http.listen = "127.0.0.1:0";
  StartServer();
  During([&] { Ask(Prompt("x", 1)); });  // refused
  During([&] {
    worker.Start();
    ASSERT_TRUE(Eventually([this] { return server_->serving(); }));
  });
  During([&] { ASSERT_TRUE(Becomes("worker_pages{worker=\"" + worker.address() + "\"}", 100)); });

  During([&] {
    EXPECT_TRUE(Ask(Prompt("go", 60)).status.ok());
    ASSERT_TRUE(Becomes("requests_total{door=\"grpc\",status=\"OK\"}", 1));
  });
  std::optional<test::RawClient> streamed;
  During([&] {
    streamed.emplace(server_->http_port());
    ASSERT_TRUE(streamed->Send(test::RequestText(
        "POST", "/v1/completions",
        R"({"prompt": "go", "max_tokens": 90000, "ignore_eos": true, "stream": true})")));
    streamed->ReadUntil("data: ");
    ASSERT_TRUE(Becomes("http_connections", 1));
    ASSERT_TRUE(Becomes("http_streams", 1));
  });
  streamed.reset();
  ASSERT_TRUE(Becomes("http_streams", 0));
  // One that waits for its admission, runs, and loses its worker.
  ScriptedWorkerOptions slow = Paced();
  slow.step_time = milliseconds(300);
  ASSERT_TRUE(Reconnect(worker, slow));
  std::future<Answer> running;
  During([&] {
    running = AskForLong();
    ASSERT_TRUE(Becomes("requests_waiting", 1));
    ASSERT_TRUE(Becomes("worker_sessions_running{worker=\"" + worker.address() + "\"}", 1));
  });
  During([&] {
    ASSERT_TRUE(Reconnect(worker, Paced()));
    ASSERT_TRUE(Becomes("reopened_choices_total{reason=\"lost\",numerics=\"identical\"}", 1));
    stop_ = true;
    running.get();
  });
  // A worker that lies.
  ASSERT_TRUE(Reconnect(worker, Lying()));
  During([&] {
    Ask(Prompt("go", 60));
    EXPECT_TRUE(Eventually([this] { return Value("misses_total") > 0; }));
    lies_->faulty = true;
    Ask(Prompt("go", 60));
    EXPECT_TRUE(Eventually([this] { return Value("fetch_seconds_count") > 0; }));
    EXPECT_GT(Value("faults_total"), 0);
  });
  ASSERT_TRUE(Reconnect(worker, Long()));
  // A client that does not read.
  During([&] {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
    const auto stub = v1::Generation::NewStub(grpc::CreateCustomChannel(
        server_->address(), grpc::InsecureChannelCredentials(), arguments));
    v1::GenerateRequest big = Prompt("slow", 4000);
    big.mutable_response()->set_logprobs(20);
    grpc::ClientContext context;
    const auto reader = stub->Generate(&context, big);
    ASSERT_TRUE(Eventually([this] { return Value("slow_client_pauses_total") > 0; }));
    context.TryCancel();
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
    }
    reader->Finish();
  });
  // More texts to tokenise than threads that do it.
  During([&] {
    const std::string text(1'000'000, 'a');
    const auto tokenize = [&] {
      grpc::ClientContext context;
      v1::TokenizeRequest request;
      request.set_text(text);
      v1::TokenizeResponse response;
      stub_->Tokenize(&context, request, &response);
    };
    std::atomic<bool> seen = false;
    std::vector<std::thread> clients;
    for (int i = 0; i < 8; ++i) {
      clients.emplace_back([&] {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (!seen && std::chrono::steady_clock::now() < end) tokenize();
      });
    }
    std::string with_waiting;
    EXPECT_TRUE(Eventually([&] {
      with_waiting = server_->MetricsText();
      return test::ParseExposition(with_waiting).at("tandem_text_tasks_waiting") > 0;
    }));
    seen = true;
    for (std::thread& client : clients) client.join();
    EXPECT_TRUE(Becomes("tasks_waiting", 0));
    moved_.merge(test::Moved(server_->MetricsText(), with_waiting));
  });

  for (const MetricSpec& spec : TextMetricTable()) {
    const std::string name(spec.name);
    if (name == "tandem_text_build_info") continue;  // it says what runs
    EXPECT_EQ(moved_.count(name), 1u) << name << " did not move";
  }
}

// Metrics are read while everything runs.
TEST_F(MetricsTest, AreReadFromAnyThreadWhileSessionsRun) {
  AddWorker(Long());
  Serve();
  std::atomic<bool> done = false;
  std::thread scraper([&] {
    double last = 0;
    while (!done) {
      const double tokens = Value("output_tokens_total{decided_from=\"lists\"}");
      EXPECT_GE(tokens, last) << "a counter fell";
      last = tokens;
    }
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&, i] {
      for (int j = 0; j < 5; ++j) {
        EXPECT_TRUE(Ask(Prompt("go " + std::to_string(i), 50)).status.ok());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Becomes("output_tokens_total{decided_from=\"lists\"}", 4 * 5 * 50));
  done = true;
  scraper.join();
}

TEST(WorkerReports, GiveTwoWorkersAtOneAddressTwoNames) {
  WorkerReports reports;
  reports.SetAddresses({"a:1", "b:1", "a:1"});
  const auto snapshot = reports.snapshot();
  EXPECT_EQ(snapshot[0].address, "a:1");
  EXPECT_EQ(snapshot[1].address, "b:1");
  EXPECT_EQ(snapshot[2].address, "a:1#2");
}

TEST(WorkerReports, ForgetWhatALostConnectionSaid) {
  WorkerReports reports;
  reports.SetAddresses({"a:1"});
  reports.Connected(0, 7);
  decode::v1::Load load;
  load.set_running(5);
  reports.Update(7, load);
  EXPECT_EQ(reports.snapshot()[0].running, 5);
  reports.SetDraining(7);
  reports.SetSuspect(7, false);
  EXPECT_EQ(reports.snapshot()[0].state, WorkerReports::State::kDraining) << "for good";
  reports.Lost(7);
  reports.Update(7, load);
  EXPECT_EQ(reports.snapshot()[0].state, WorkerReports::State::kLost);
  reports.Connected(0, 8);
  EXPECT_EQ(reports.snapshot()[0].running, 0);
}

TEST(TextStatus, SaysHowItGoesAndNothingWhereNothingRuns) {
  TextSnapshot earlier, now;
  testing::internal::CaptureStderr();
  LogStatus(now, earlier, 10);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  now.shards.running = 15;
  now.shards.waiting = 3;
  now.shards.from_lists = 12'040;
  now.shards.first_token_seconds.Observe(0.15, 4);
  now.workers.resize(2);
  now.workers[0] = {.state = WorkerReports::State::kReady, .free_pages = 61, .total_pages = 100};
  testing::internal::CaptureStderr();
  LogStatus(now, earlier, 10);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("info: 12 running, 3 queued, 1,204 tok/s, first token 0.15 s (median), "
                        "pages 61 % free, 1 of 2 workers\n"));
}

TEST(TextStatusDeathTest, GivesNoMedianWhereThereIsNone) {
  TextSnapshot earlier, now;
  now.shards.running = 1;
  // In a process of its own: the format of a process's log is set once.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        InitLogging("tandem-text", {.format = LogFormat::kJson});
        LogStatus(now, earlier, 10);
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "\"first_token_seconds_p50\":null");
}

// "reason: a, b; state: c" has the values that there are.
TEST(TextMetricTable, NamesEachValueOfALabel) {
  const std::string metrics = ExposeMetrics({});
  for (const MetricSpec& spec : TextMetricTable()) {
    const std::string labels(spec.labels);
    for (const std::string label : {"reason", "state", "numerics", "finish", "decided_from"}) {
      const size_t at = labels.find(label + ": ");
      if (at == std::string::npos) continue;
      const std::string listed = ", " + labels.substr(at + label.size() + 2) + ",";
      const std::string sample = "\n" + std::string(spec.name) + "{";
      for (size_t line = metrics.find(sample); line != std::string::npos;
           line = metrics.find(sample, line + 1)) {
        const std::string open = label + "=\"";
        const size_t begin = metrics.find(open, line) + open.size();
        const std::string value = metrics.substr(begin, metrics.find('"', begin) - begin);
        const bool named = listed.find(", " + value + ",") != std::string::npos ||
                           listed.find(", " + value + ";") != std::string::npos;
        EXPECT_TRUE(named) << spec.name << ": " << label << " is also " << value;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::text
