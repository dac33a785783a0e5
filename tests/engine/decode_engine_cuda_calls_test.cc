// What a steady decode step asks of CUDA, call by call. A step is what DecodeEngine::Launch
// enqueues: in it nothing allocates, and nothing waits for the device. Results are received between
// steps: Wait waits for the event behind the oldest step in flight, while the step after it is
// already enqueued; that is the one synchronising call there may be, and the device does not idle
// for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/checkpoint/random_checkpoint.h"
#include "engine/decode_engine.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/kernels/cuda/cuda_calls.h"
#include "tests/support/allocation_counter.h"

namespace tandem {
namespace {

using test::CudaCall;
using test::CudaCallKind;

constexpr int32_t kPrompt = 100;
constexpr int32_t kWarmSteps = 40;
constexpr int32_t kSteps = 200;

enum Phase : int { kLaunch, kWait, kReceive, kNumPhases };
constexpr const char* kPhaseNames[] = {"Launch", "Wait", "Collect, Extend"};

class CudaCallsTest : public testing::TestWithParam<int32_t> {
 protected:
  void SetUp() override {
    auto ops = kernels::MakeCudaOps({});
    if (ops.status().code() == absl::StatusCode::kFailedPrecondition) GTEST_SKIP() << ops.status();
    ASSERT_TRUE(ops.ok()) << ops.status();
    ops_ = *std::move(ops);
    auto checkpoint = RandomCheckpoint("smollm2-135m");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    auto model =
        Model::Load(**checkpoint, kernels::KvFormat::kBF16, {.max_rows = 512}, *ops_, nullptr);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    EngineOptions options;
    options.max_sessions = GetParam();
    options.max_queued = GetParam();
    options.step_tokens = 512;
    options.context_length = 1024;
    options.kv_tokens = int64_t{GetParam()} * 1024;
    options.kv_format = kernels::KvFormat::kBF16;
    options.decode_slowdown = 0;  // all prompts first, then decode alone
    auto engine = DecodeEngine::Make(options, {}, *model_, *ops_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    for (int32_t i = 0; i < GetParam(); ++i) {
      OpenCommand open;
      open.first = {1, static_cast<uint64_t>(i + 1)};
      for (int32_t j = 0; j < kPrompt; ++j) open.tokens.push_back(1 + (i * 131 + j * 17) % 40000);
      open.prompt_length = kPrompt;
      open.run_ahead = 8;
      engine_->Open(std::move(open), SteadyNow());
    }
  }

  // Adds to calls_ and host_bytes_ what `work` does.
  template <typename Work>
  void Count(Phase phase, const Work& work) {
    const std::vector<CudaCall> before = test::CudaCalls();
    const int64_t bytes = test::AllocatedBytes();
    work();
    host_bytes_[phase] += test::AllocatedBytes() - bytes;
    const std::vector<CudaCall> after = test::CudaCalls();
    std::vector<CudaCall>& calls = calls_[phase];
    calls.resize(after.size());
    for (size_t i = 0; i < after.size(); ++i) {
      const int64_t count = calls[i].count + after[i].count - before[i].count;
      calls[i] = {after[i].name, after[i].kind, count};
    }
  }

  // As a worker's loop has it, with two steps in flight. Candidates received.
  int32_t Step() {
    Count(kLaunch, [&] {
      engine_->Launch(SteadyNow());
      engine_->Launch(SteadyNow());  // refused where two are in flight
    });
    Count(kWait, [&] { engine_->Wait(); });
    int32_t num_rows = 0;
    Count(kReceive, [&] {
      EXPECT_TRUE(engine_->Collect(SteadyNow()).ok());
      for (const EngineEvent& event : engine_->TakeEvents()) {
        const auto* candidates = std::get_if<CandidatesEvent>(&event);
        if (candidates == nullptr) continue;
        ++num_rows;
        const Candidates& lists = candidates->candidates;
        engine_->Extend({candidates->handle,
                         candidates->position,
                         candidates->epoch,
                         {lists.summary.drawn >= 0 ? lists.summary.drawn : lists.top[0].id}},
                        SteadyNow());
      }
    });
    return num_rows;
  }

  void Reset() {
    for (std::vector<CudaCall>& calls : calls_) calls.clear();
    std::fill(std::begin(host_bytes_), std::end(host_bytes_), 0);
  }

  int64_t Sum(Phase phase, CudaCallKind kind) const {
    int64_t sum = 0;
    for (const CudaCall& call : calls_[phase]) sum += call.kind == kind ? call.count : 0;
    return sum;
  }

  void PrintTable(int32_t steps) const {
    std::printf("batch %d, %d steps, calls per step:\n  %-28s %-13s %8s %8s %16s\n", GetParam(),
                steps, "", "", kPhaseNames[0], kPhaseNames[1], kPhaseNames[2]);
    for (size_t i = 0; i < calls_[0].size(); ++i) {
      const double per_step[] = {static_cast<double>(calls_[0][i].count) / steps,
                                 static_cast<double>(calls_[1][i].count) / steps,
                                 static_cast<double>(calls_[2][i].count) / steps};
      if (per_step[0] + per_step[1] + per_step[2] == 0.0) continue;
      std::printf("  %-28s %-13s %8.3f %8.3f %16.3f\n", calls_[0][i].name.c_str(),
                  test::CudaCallKindName(calls_[0][i].kind), per_step[0], per_step[1], per_step[2]);
    }
    std::printf("  %-28s %-13s %8.1f %8.1f %16.1f\n", "bytes of operator new", "host",
                static_cast<double>(host_bytes_[0]) / steps,
                static_cast<double>(host_bytes_[1]) / steps,
                static_cast<double>(host_bytes_[2]) / steps);
  }

  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<DecodeEngine> engine_;
  std::vector<CudaCall> calls_[kNumPhases];
  int64_t host_bytes_[kNumPhases] = {};
};

TEST_P(CudaCallsTest, ASteadyDecodeStepNeitherAllocatesNorWaits) {
  for (int32_t warm = 0; warm < kWarmSteps;) warm += Step() == GetParam() ? 1 : 0;
  Reset();
  // A draw that the lists do not decide leaves its session out of the next step.
  int32_t num_candidates = 0;
  for (int32_t step = 0; step < kSteps; ++step) num_candidates += Step();
  EXPECT_GT(num_candidates, kSteps * GetParam() / 2);
  PrintTable(kSteps);
  for (const Phase phase : {kLaunch, kWait, kReceive}) {
    SCOPED_TRACE(kPhaseNames[phase]);
    EXPECT_EQ(Sum(phase, CudaCallKind::kAllocates), 0);
    // Steps run as they were recorded: nothing that the counts do not see is called.
    EXPECT_EQ(Sum(phase, CudaCallKind::kLibrary), 0);
    if (phase != kWait) {
      EXPECT_EQ(Sum(phase, CudaCallKind::kSynchronises), 0);
    }
  }
  for (const CudaCall& call : calls_[kWait]) {
    if (call.kind == CudaCallKind::kSynchronises) {
      EXPECT_LE(call.count, call.name == "cudaEventSynchronize" ? kSteps : 0) << call.name;
    }
  }
}

// The counters see what they are there for: the first steps allocate and record.
TEST_P(CudaCallsTest, TheFirstStepsAreSeenToAllocate) {
  for (int32_t warm = 0; warm < kWarmSteps;) warm += Step() == GetParam() ? 1 : 0;
  EXPECT_GT(Sum(kLaunch, CudaCallKind::kAllocates), 0);
  EXPECT_GT(Sum(kLaunch, CudaCallKind::kLibrary) + Sum(kLaunch, CudaCallKind::kEnqueues), 0);
  EXPECT_GT(Sum(kWait, CudaCallKind::kSynchronises), 0);
}

INSTANTIATE_TEST_SUITE_P(Batches, CudaCallsTest, testing::Values(1, 64),
                         [](const testing::TestParamInfo<int32_t>& info) {
                           return "Of" + std::to_string(info.param);
                         });

}  // namespace
}  // namespace tandem
