#include "services/worker/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "services/common/flags.h"
#include "services/worker/backend.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Parsed {
  std::optional<int> exit_code;
  WorkerOptions options;
  std::string out;
  std::string err;
};

Parsed Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tandem-worker");
  Parsed parsed;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  parsed.exit_code =
      ParseOptions(static_cast<int>(arguments.size()), arguments.data(), &parsed.options);
  parsed.out = ::testing::internal::GetCapturedStdout();
  parsed.err = ::testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(WorkerOptions, EveryFlagIsTaken) {
  const Parsed parsed = Parse({"--model",           "a/b.gguf",   "--name",          "n",
                               "--listen",          "0.0.0.0:1",  "--port-file",     "p",
                               "--device",          "reference",  "--threads",       "3",
                               "--context",         "100",        "--max-sessions",  "4",
                               "--max-queued",      "5",          "--step-tokens",   "6",
                               "--kv-tokens",       "7000000000", "--tls-cert",      "c",
                               "--tls-key",         "k",          "--tls-ca",        "a",
                               "--prefix-cache",    "off",        "--max-run-ahead", "0",
                               "--decode-slowdown", "1.5",        "--drain-seconds", "9",
                               "--max-drafts",      "3",          "--checked"});
  ASSERT_FALSE(parsed.exit_code.has_value()) << parsed.err;
  EXPECT_EQ(parsed.options.model, "a/b.gguf");
  EXPECT_EQ(parsed.options.name, "n");
  EXPECT_EQ(parsed.options.server.listen, "0.0.0.0:1");
  EXPECT_EQ(parsed.options.port_file, "p");
  EXPECT_EQ(parsed.options.device, "reference");
  EXPECT_EQ(parsed.options.threads, 3);
  EXPECT_TRUE(parsed.options.checked);
  EXPECT_EQ(parsed.options.engine.context_length, 100);
  EXPECT_EQ(parsed.options.engine.max_sessions, 4);
  EXPECT_EQ(parsed.options.engine.max_queued, 5);
  EXPECT_EQ(parsed.options.engine.step_tokens, 6);
  EXPECT_EQ(parsed.options.engine.kv_tokens, 7'000'000'000);
  EXPECT_FALSE(parsed.options.engine.prefix_cache);
  EXPECT_EQ(parsed.options.engine.max_run_ahead, 0);
  EXPECT_EQ(parsed.options.engine.max_drafts, 3);
  EXPECT_EQ(parsed.options.engine.decode_slowdown, 1.5);
  EXPECT_EQ(parsed.options.engine.drain_spread, 9 * kNanosPerSecond);
  EXPECT_EQ(parsed.options.server.tls.certificate, "c");
  EXPECT_EQ(parsed.options.server.tls.key, "k");
  EXPECT_EQ(parsed.options.server.tls.authority, "a");
}

TEST(WorkerOptions, DefaultsAreTheEnginesOwn) {
  const EngineOptions engine = Parse({"--model", "m"}).options.engine;
  EXPECT_FALSE(Parse({"--model", "m"}).options.checked);
  EXPECT_EQ(engine.prefix_cache, EngineOptions().prefix_cache);
  EXPECT_EQ(engine.max_run_ahead, EngineOptions().max_run_ahead);
  EXPECT_EQ(engine.max_drafts, EngineOptions().max_drafts);
  EXPECT_EQ(engine.decode_slowdown, EngineOptions().decode_slowdown);
  EXPECT_EQ(engine.drain_spread, EngineOptions().drain_spread);
}

TEST(WorkerOptions, ADecodeSlowdownOfZeroIsNoLimit) {
  EXPECT_EQ(Parse({"--model", "m", "--decode-slowdown", "0"}).options.engine.decode_slowdown, 0.0);
}

TEST(WorkerOptions, TheNameIsTheFilesOwn) {
  EXPECT_EQ(Parse({"--model", "some/Model-1.5.gguf"}).options.name, "Model-1.5");
}

TEST(WorkerOptions, ABadValueIsOneLineWithFlagValueAndLimit) {
  struct Case {
    std::vector<const char*> arguments;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {{}, {"--model"}},
      {{"--model", "m", "--threads", "257"}, {"--threads", "257", "256"}},
      {{"--model", "m", "--threads", "-3"}, {"--threads", "-3", "0 to 256"}},
      {{"--model", "m", "--max-sessions", "0"}, {"--max-sessions", "0", "1 to"}},
      {{"--model", "m", "--step-tokens", "many"}, {"--step-tokens", "many"}},
      {{"--model", "m", "--kv-tokens", "-1"}, {"--kv-tokens", "-1"}},
      {{"--model", "m", "--prefix-cache", "maybe"}, {"--prefix-cache", "maybe", "on", "off"}},
      {{"--model", "m", "--max-run-ahead", "17"}, {"--max-run-ahead", "17", "0 to 16"}},
      {{"--model", "m", "--decode-slowdown", "0.5"}, {"--decode-slowdown", "0.5", "1 to 100"}},
      {{"--model", "m", "--decode-slowdown", "101"}, {"--decode-slowdown", "101", "1 to 100"}},
      {{"--model", "m", "--decode-slowdown", "nan"}, {"--decode-slowdown", "nan", "1 to 100"}},
      {{"--model", "m", "--drain-seconds", "601"}, {"--drain-seconds", "601", "0 to 600"}},
      {{"--model", "m", "--device", "tpu"}, {"--device", "tpu", "cpu"}},
      {{"--model", "m", "--no-such-flag"}, {"--no-such-flag"}},
      {{"--model", "m", "--name", "\xff"}, {"--name", "ASCII"}},
      {{"--model", "m", "--device", "a\nb"}, {"--device", "a\\x0ab"}},
  };
  for (const Case& c : cases) {
    const Parsed parsed = Parse(c.arguments);
    EXPECT_EQ(parsed.exit_code, kExitUsage);
    EXPECT_EQ(std::count(parsed.err.begin(), parsed.err.end(), '\n'), 1) << parsed.err;
    for (const std::string& part : c.parts) EXPECT_THAT(parsed.err, HasSubstr(part));
  }
}

TEST(WorkerOptions, HelpAndVersionGoToStdoutAndLeaveWithZero) {
  const Parsed help = Parse({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--kv-tokens"));
  const Parsed version = Parse({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, HasSubstr("."));
}

TEST(MakeOps, CudaWorksOrNamesWhatThisBuildOrMachineLacks) {
  const auto cuda = MakeOps("cuda", 0);
  if (cuda.ok()) {
    EXPECT_EQ((*cuda)->info().name, "cuda");
    return;
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(cuda.status())) << cuda.status();
  EXPECT_THAT(std::string(cuda.status().message()),
              AllOf(HasSubstr("--device cuda"),
                    AnyOf(HasSubstr("no CUDA backend"), HasSubstr("no usable NVIDIA driver"),
                          HasSubstr("no CUDA device"), HasSubstr("compute"))));
}

TEST(MakeOps, AutoIsTheBestThatThereIs) {
  const auto ops = MakeOps("auto", 1);
  ASSERT_TRUE(ops.ok()) << ops.status();
  EXPECT_EQ((*ops)->info().name, MakeOps("cuda", 0).ok() ? "cuda" : "cpu");
  EXPECT_EQ((*MakeOps("reference", 0))->info().name, "reference");
  EXPECT_TRUE(absl::IsInvalidArgument(MakeOps("abacus", 0).status()));
}

}  // namespace
}  // namespace tandem
