// A generation of real processes, recorded through the loss of its worker, and explained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "services/trace/trace_file.h"
#include "tests/e2e/fleet.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kTinyFlags = {"--threads", "1", "--context", "512"};

v1::GenerateRequest Request(int32_t tokens) {
  v1::GenerateRequest request;
  request.set_prompt("Once upon a time");
  request.set_max_tokens(tokens);
  v1::Sampling& sampling = *request.mutable_sampling();
  sampling.set_seed(31);
  sampling.set_temperature(0.9f);
  sampling.set_top_k(50);
  sampling.set_top_p(0.95f);
  sampling.set_repetition_penalty(1.1f);
  sampling.set_presence_penalty(0.4f);
  sampling.set_n(2);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_response()->set_token_ids(true);
  return request;
}

// The trace of this request id, once it is whole; "": there is none.
std::string TraceOf(const std::string& folder, const std::string& request_id) {
  for (int i = 0; i < 1500; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string path = entry.path().string();
      if (path.find("-" + request_id + ".trace") == std::string::npos) continue;
      const auto trace = ReadTrace(path);
      if (trace.ok() && trace->end.reason() == trace::v1::End::REASON_DONE) return path;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return "";
}

RunResult Explain(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ProgramPath("tandem"), "explain"});
  return RunProgram(arguments);
}

// The lines that are JSON objects.
std::vector<json> Objects(const std::string& output) {
  std::vector<json> out;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] == '{') out.push_back(json::parse(line));
  }
  return out;
}

class ExplainTest : public testing::Test {
 protected:
  // One recorded generation for all tests; its worker is killed and comes back meanwhile.
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    Fleet fleet({.model = "random:tiny",
                 .worker_flags = kTinyFlags,
                 .text_flags = {"--trace-dir", folder_->File("."), "--replay-tries", "100"}});
    undisturbed_ = new CallResult(fleet.Generate(Request(300)));
    // A kill may come too late where the machine is busy; then again.
    for (int i = 0; i < 20 && trace_.empty(); ++i) {
      const std::string id = "killed-" + std::to_string(i);
      if (GenerateAndKill(fleet, id) > 0) trace_ = TraceOf(folder_->File("."), id);
    }
    ASSERT_FALSE(trace_.empty());
  }
  static void TearDownTestSuite() {
    trace_.clear();
    delete undisturbed_;
    delete folder_;
  }

  // How often choices were opened again.
  static int GenerateAndKill(Fleet& fleet, const std::string& request_id) {
    v1::GenerateRequest request = Request(300);
    request.set_request_id(request_id);
    grpc::ClientContext context;
    const auto reader = fleet.stub().Generate(&context, request);
    v1::GenerateResponse response;
    bool killed = false;
    int reopened = 0;
    std::vector<std::vector<int32_t>> tokens(2);
    while (reader->Read(&response)) {
      if (response.has_delta() && !killed) {
        killed = true;
        fleet.KillWorker();
        fleet.StartWorkerAgain(0);
      }
      for (const int32_t id : response.delta().token_ids()) {
        tokens[response.delta().choice()].push_back(id);
      }
      if (response.has_finished()) reopened += response.finished().counters().reopened();
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(tokens, undisturbed_->token_ids);
    EXPECT_TRUE(fleet.WaitServing(60));
    return reopened;
  }

  static TemporaryFolder* folder_;
  static CallResult* undisturbed_;
  static std::string trace_;
};

TemporaryFolder* ExplainTest::folder_ = nullptr;
CallResult* ExplainTest::undisturbed_ = nullptr;
std::string ExplainTest::trace_;

TEST_F(ExplainTest, EveryTokenIsDecidedAgainThroughTheLossOfTheWorker) {
  const RunResult result = Explain({trace_, "--json"});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("600 of 600 recorded tokens"));
  std::map<int, std::vector<int32_t>> tokens;
  int reopened = 0;
  std::set<uint64_t> connections;
  for (const json& step : Objects(result.output)) {
    EXPECT_TRUE(step.at("agrees").get<bool>());
    tokens[step.at("choice")].push_back(step.at("token").at("id"));
    reopened += step.at("reopened").get<int>() > 0;
    connections.insert(step.at("connection").get<uint64_t>());
  }
  EXPECT_EQ(tokens[0], undisturbed_->token_ids[0]);
  EXPECT_EQ(tokens[1], undisturbed_->token_ids[1]);
  EXPECT_GT(reopened, 0);
  EXPECT_GE(connections.size(), 2u);
}

TEST_F(ExplainTest, AStepSaysWhatEachRuleDidAndWhatWasDrawn) {
  const RunResult result = Explain({trace_, "--json", "--from", "30", "--to", "60"});
  ASSERT_EQ(result.status, 0) << result.output;
  const std::vector<json> steps = Objects(result.output);
  ASSERT_EQ(steps.size(), 62u);
  int penalised = 0;
  for (const json& step : steps) {
    EXPECT_EQ(step.at("kept").at("top_k"), 50);
    double best = -1e30;
    double drawn = 0.0;
    int num_drawn = 0;
    for (const json& entry : step.at("candidates")) {
      const double perturbed = entry.at("perturbed");
      const std::string fate = entry.at("fate");
      if (fate == "kept" || fate == "drawn") best = std::max(best, perturbed);
      if (fate == "drawn") {
        drawn = perturbed;
        ++num_drawn;
        EXPECT_EQ(entry.at("id"), step.at("token").at("id"));
      }
      penalised += entry.at("presence_count").get<int>() > 0 &&
                   entry.at("adjusted").get<double>() < entry.at("raw").get<double>();
      EXPECT_TRUE(entry.contains("text")) << entry;
    }
    EXPECT_EQ(num_drawn, 1);
    EXPECT_EQ(drawn, best);
  }
  EXPECT_GT(penalised, 0);
}

TEST_F(ExplainTest, WhatIsAskedForByStepIsShownInFull) {
  const RunResult result = Explain({trace_, "--choice", "1", "--step", "40"});
  ASSERT_EQ(result.status, 0) << result.output;
  for (const char* part : {"temperature 0.9, top_k 50, top_p 0.95, repetition_penalty 1.1",
                           "choice 1, position 40", "-> top_k 50 -> top_p", "drawn"}) {
    EXPECT_THAT(result.output, HasSubstr(part));
  }
  EXPECT_THAT(result.output, Not(HasSubstr("choice 0")));
  EXPECT_EQ(Explain({trace_, "--step", "5000"}).status, 1);
}

TEST_F(ExplainTest, OtherParametersSayWhatTheyWouldHaveDrawnOrThatItIsUndecided) {
  int same = 0, other = 0, undecided = 0;
  for (const json& step : Objects(Explain({trace_, "--json", "--temperature", "0"}).output)) {
    // Greedy is rank 0, which every step has.
    EXPECT_EQ(step.at("otherwise").at("id"), step.at("candidates")[0].at("id"));
  }
  for (const json& step :
       Objects(Explain({trace_, "--json", "--seed", "5", "--top-p", "0.99"}).output)) {
    if (step.at("otherwise").contains("undecided")) {
      ++undecided;
      EXPECT_FALSE(step.at("otherwise").at("undecided").get<std::string>().empty());
    } else {
      ++(step.at("otherwise").at("id") == step.at("token").at("id") ? same : other);
    }
  }
  EXPECT_GT(same, 0);
  EXPECT_GT(other, 0);
  EXPECT_EQ(same + other + undecided, 600);
  const RunResult wrong = Explain({trace_, "--temperature", "-3"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.output, HasSubstr("temperature is -3"));
}

TEST_F(ExplainTest, ARecordedTokenThatIsNotTheOneDecidedIsLoud) {
  auto trace = ReadTrace(trace_);
  ASSERT_TRUE(trace.ok());
  trace::v1::Record header;
  *header.mutable_header() = trace->header;
  std::string bytes = std::string(kTraceMagic) + DelimitedRecord(header);
  // The last Extend: nothing that follows it depends on its tokens but the end of its choice.
  size_t last = 0;
  for (size_t i = 0; i < trace->records.size(); ++i) {
    if (trace->records[i].command().has_extend()) last = i;
  }
  for (size_t i = 0; i <= last; ++i) {
    trace::v1::Record record = trace->records[i];
    if (i == last) {
      decode::v1::Extend& extend = *record.mutable_command()->mutable_extend();
      const int at = extend.tokens_size() - 1;
      extend.set_tokens(at, extend.tokens(at) ^ 1u);
    }
    bytes += DelimitedRecord(record);
  }
  const std::string path = folder_->File("changed");
  std::ofstream(path, std::ios::binary) << bytes;
  const RunResult result = Explain({path});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("MISMATCH: choice"));
  std::filesystem::remove(path);
}

TEST_F(ExplainTest, ATraceThatWasCutOffIsExplainedAsFarAsItGoes) {
  std::ifstream file(trace_, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  bytes.resize(bytes.size() / 2 + 3);
  const std::string path = folder_->File("cut");
  std::ofstream(path, std::ios::binary) << bytes;
  const RunResult result = Explain({path});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("cut off"));
  EXPECT_THAT(result.output, HasSubstr("are the same"));
  std::filesystem::remove(path);
  const RunResult none = Explain({folder_->File("none")});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, HasSubstr(folder_->File("none")));
}

TEST_F(ExplainTest, ATextTierThatIsKilledLeavesWhatItHadRecorded) {
  const TemporaryFolder folder;
  Fleet fleet({.model = "random:tiny",
               .worker_flags = kTinyFlags,
               .text_flags = {"--trace-dir", folder.File(".")}});
  grpc::ClientContext context;
  const auto reader = fleet.stub().Generate(&context, Request(450));
  v1::GenerateResponse response;
  // Until something is on the disk, which has its own pace.
  std::string path;
  bool written = false;
  while (!written && reader->Read(&response)) {
    const std::filesystem::directory_iterator files(folder.File("."));
    if (files == std::filesystem::directory_iterator()) continue;
    path = files->path().string();
    const auto trace = ReadTrace(path);
    written = trace.ok() && trace->records.size() > 20;
  }
  fleet.text().Signal(SIGKILL);
  fleet.text().Wait(10);
  context.TryCancel();
  reader->Finish();
  ASSERT_TRUE(written);
  const RunResult result = Explain({path});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("are the same"));
}

TEST_F(ExplainTest, TokensAreTheSameWhereNothingIsRecorded) {
  Fleet fleet({.model = "random:tiny", .worker_flags = kTinyFlags, .text_flags = {}});
  EXPECT_EQ(fleet.Generate(Request(300)).token_ids, undisturbed_->token_ids);
}

}  // namespace
}  // namespace tandem::test
