// What scheduling costs and gives, without a network. One JSON object a line.
//
//   scheduler_bench cost                       a backend that computes nothing: us a step of the
//                                              engine's own work at 1, 64, 256 and 1024 sessions
//   scheduler_bench interference MODEL.gguf    8 sessions decode on the CPU, then a prompt of 3,000
//                                              tokens comes: their time per token, alone, beside
//                                              the prompt in chunks, and beside it all at once
//   scheduler_bench prefix MODEL.gguf [N]      N (default 200) requests, one after the other, with
//                                              300 tokens in common and 20 of their own: time to
//                                              first token with and without the prefix cache
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/decode_engine.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/bench/bench_support.h"
#include "tests/bench/idle_ops.h"
#include "tests/simulation/fake_checkpoint.h"

namespace tandem::test {
namespace {

OpenCommand OpenOf(uint64_t number, std::vector<int32_t> tokens, int32_t max_new) {
  OpenCommand open;
  open.first = {1, number};
  open.prompt_length = static_cast<int32_t>(tokens.size());
  open.tokens = std::move(tokens);
  open.max_new = max_new;
  return open;
}

// Confirms what was drawn, as a text tier does, or the best candidate where nothing was.
void Confirm(const CandidatesEvent& event, DecodeEngine* engine) {
  const int32_t drawn = event.candidates.summary.drawn;
  engine->Extend({event.handle,
                  event.position,
                  event.epoch,
                  {drawn >= 0 ? drawn : event.candidates.top[0].id}},
                 SteadyNow());
}

// ---- cost --------------------------------------------------------------------------------------

void Cost(int32_t num_sessions) {
  constexpr int kSteps = 2000;
  IdleOps ops;
  const FakeCheckpoint checkpoint;
  const std::unique_ptr<Model> model = Must(Model::Load(
      checkpoint, kernels::KvFormat::kF32, {.max_rows = 4096}, ops, [](int64_t, int64_t) {}));
  EngineOptions options;
  options.max_sessions = num_sessions;
  options.max_queued = num_sessions;
  options.step_tokens = std::max(num_sessions, 256);
  const int32_t context = model->context_length();
  options.kv_tokens = int64_t{num_sessions} * (context + 64);
  const std::unique_ptr<DecodeEngine> engine = Must(DecodeEngine::Make(options, {}, *model, ops));
  uint64_t next = 1;
  std::vector<double> step_us, extend_us, load_us;
  std::vector<EngineEvent> events;
  while (step_us.size() < kSteps) {
    while (engine->num_live() < num_sessions) {
      engine->Open(OpenOf(next, Tokens(next, 20, model->config().vocab_size), context - 21), 0);
      ++next;
    }
    const Nanos own = ops.own_nanos();
    const Nanos start = SteadyNow();
    engine->Launch(start);
    TANDEM_CHECK(engine->Collect(start).ok());
    events = engine->TakeEvents();
    const Nanos end = SteadyNow();
    const int64_t num_candidates = std::count_if(
        events.begin(), events.end(),
        [](const EngineEvent& event) { return std::holds_alternative<CandidatesEvent>(event); });
    const bool is_full = num_candidates == num_sessions;
    if (is_full) step_us.push_back(1e-3 * double(end - start - (ops.own_nanos() - own)));
    const Nanos extend_start = SteadyNow();
    for (const EngineEvent& event : events) {
      if (const auto* candidates = std::get_if<CandidatesEvent>(&event)) {
        Confirm(*candidates, engine.get());
      }
    }
    if (is_full) extend_us.push_back(1e-3 * double(SteadyNow() - extend_start));
    const Nanos load_start = SteadyNow();
    TANDEM_CHECK(engine->load().running <= num_sessions);
    load_us.push_back(1e-3 * double(SteadyNow() - load_start));
    for (const EngineEvent& event : events) {
      const auto* candidates = std::get_if<CandidatesEvent>(&event);
      if (candidates != nullptr && candidates->position + 1 >= context - 1) {
        engine->Close({candidates->handle}, SteadyNow());
      }
    }
  }
  nlohmann::json out = {{"bench", "cost"},
                        {"sessions", num_sessions},
                        {"steps", step_us.size()},
                        {"step_us_p50", Quantile(step_us, 0.5)},
                        {"step_us_p99", Quantile(step_us, 0.99)},
                        {"extends_us_p50", Quantile(extend_us, 0.5)},
                        {"load_us_p50", Quantile(load_us, 0.5)}};
  std::puts(out.dump().c_str());
  std::fflush(stdout);
}

// ---- on a real model ---------------------------------------------------------------------------

struct CpuModel {
  explicit CpuModel(const char* path, int32_t max_rows)
      : ops(Must(kernels::MakeCpuOps({}))), checkpoint(Must(OpenCheckpoint(path))) {
    model = Must(Model::Load(*checkpoint, kernels::KvFormat::kF32,
                             {.max_rows = max_rows, .context_length = 4096}, *ops,
                             [](int64_t, int64_t) {}));
  }
  std::unique_ptr<kernels::Ops> ops;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Model> model;
};

// One engine turn, as the worker's loop makes it on a backend that computes in Launch.
std::vector<EngineEvent> Turn(DecodeEngine* engine) {
  engine->Launch(SteadyNow());
  engine->Wait();
  TANDEM_CHECK(engine->Collect(SteadyNow()).ok());
  return engine->TakeEvents();
}

// num_steps: how long the sessions decode alone; 0: beside the prompt, until its first token.
// Returns how many steps were measured, so that the same contexts can be measured alone.
int Interference(CpuModel* cpu, const char* name, int num_steps, int32_t step_tokens,
                 double slowdown) {
  constexpr int kSessions = 8, kWarm = 40;
  const bool with_prompt = num_steps == 0;
  EngineOptions options;
  options.max_sessions = kSessions + 1;
  options.step_tokens = step_tokens;
  options.decode_slowdown = slowdown;
  options.context_length = 4096;
  options.kv_tokens = 24 * 1024;
  const int32_t vocab_size = cpu->model->config().vocab_size;
  const std::unique_ptr<DecodeEngine> engine =
      Must(DecodeEngine::Make(options, {}, *cpu->model, *cpu->ops));
  for (int i = 0; i < kSessions; ++i) {
    engine->Open(OpenOf(1 + uint64_t(i), Tokens(1 + uint64_t(i), 50, vocab_size), 2000),
                 SteadyNow());
  }
  constexpr uint64_t kPrompt = 100;
  std::map<uint64_t, Nanos> last;
  std::vector<double> per_token_ms;
  Nanos opened = 0;
  double first_token_s = 0.0;
  int turns = 0;
  bool prefilling = false;
  while (with_prompt ? first_token_s == 0.0 : turns < kWarm + num_steps) {
    if (++turns == kWarm && with_prompt) {
      opened = SteadyNow();
      prefilling = true;
      engine->Open(OpenOf(kPrompt, Tokens(99, 3000, vocab_size), 10), opened);
    }
    for (const EngineEvent& event : Turn(engine.get())) {
      const auto* candidates = std::get_if<CandidatesEvent>(&event);
      if (candidates == nullptr) continue;
      const Nanos now = SteadyNow();
      const uint64_t number = candidates->handle.number;
      if (number == kPrompt) {
        first_token_s = 1e-9 * double(now - opened);
        continue;
      }
      if (prefilling || (turns > kWarm && !with_prompt)) {
        per_token_ms.push_back(1e-6 * double(now - last[number]));
      }
      last[number] = now;
      Confirm(*candidates, engine.get());
    }
  }
  nlohmann::json out = {{"bench", "interference"},
                        {"case", name},
                        {"step_tokens", step_tokens},
                        {"decode_slowdown", slowdown},
                        {"tokens", per_token_ms.size()},
                        {"ms_per_token_p50", Quantile(per_token_ms, 0.5)},
                        {"ms_per_token_p99", Quantile(per_token_ms, 0.99)},
                        {"ms_per_token_max", Quantile(per_token_ms, 1.0)}};
  if (with_prompt) out["first_token_of_prompt_s"] = first_token_s;
  std::puts(out.dump().c_str());
  std::fflush(stdout);
  return turns - kWarm;
}

void Prefix(CpuModel* cpu, int32_t num_requests) {
  std::map<bool, std::vector<double>> first_token_ms;
  std::map<bool, EngineLoad> load;
  std::map<bool, std::vector<int32_t>> output;
  for (const bool cached : {false, true}) {
    EngineOptions options;
    options.max_sessions = 4;
    options.context_length = 1024;
    options.prefix_cache = cached;
    const int32_t vocab_size = cpu->model->config().vocab_size;
    const std::unique_ptr<DecodeEngine> engine =
        Must(DecodeEngine::Make(options, {}, *cpu->model, *cpu->ops));
    for (int32_t i = 0; i < num_requests; ++i) {
      std::vector<int32_t> tokens = Tokens(1, 300, vocab_size);
      const std::vector<int32_t> own = Tokens(1000 + uint64_t(i), 20, vocab_size);
      tokens.insert(tokens.end(), own.begin(), own.end());
      const SessionHandle handle{1, 1 + uint64_t(i)};
      const Nanos start = SteadyNow();
      engine->Open(OpenOf(handle.number, std::move(tokens), 4), start);
      int num_tokens = 0;
      while (num_tokens < 4) {
        for (const EngineEvent& event : Turn(engine.get())) {
          const auto* candidates = std::get_if<CandidatesEvent>(&event);
          if (candidates == nullptr) continue;
          if (num_tokens++ == 0) first_token_ms[cached].push_back(1e-6 * (SteadyNow() - start));
          output[cached].push_back(candidates->candidates.top[0].id);
          Confirm(*candidates, engine.get());
        }
      }
      engine->Close({handle}, SteadyNow());
    }
    load[cached] = engine->load();
  }
  // The first request has nothing to find.
  std::vector<double>& with = first_token_ms[true];
  with.erase(with.begin());
  const nlohmann::json out = {{"bench", "prefix"},
                              {"requests", num_requests},
                              {"same_tokens", output[false] == output[true]},
                              {"first_token_ms_p50_without", Quantile(first_token_ms[false], 0.5)},
                              {"first_token_ms_p50_with", Quantile(with, 0.5)},
                              {"ratio", Quantile(with, 0.5) / Quantile(first_token_ms[false], 0.5)},
                              {"prefilled_tokens_without", load[false].prefilled_tokens},
                              {"prefilled_tokens_with", load[true].prefilled_tokens},
                              {"reused_tokens", load[true].reused_tokens}};
  std::puts(out.dump().c_str());
}

int Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "cost" && argc == 2) {
    for (const int32_t sessions : {1, 64, 256, 1024}) Cost(sessions);
    return 0;
  }
  if (what == "interference" && argc == 3) {
    CpuModel cpu(argv[2], 4096);
    const int num_steps = Interference(&cpu, "chunks", 0, 256, 1.75);
    Interference(&cpu, "alone", num_steps, 256, 1.75);
    Interference(&cpu, "chunks", 0, 256, 1.75);
    Interference(&cpu, "chunks of the whole step", 0, 256, 0);
    Interference(&cpu, "all at once", 0, 4096, 0);
    return 0;
  }
  if (what == "prefix" && (argc == 3 || argc == 4)) {
    CpuModel cpu(argv[2], 256);
    Prefix(&cpu, argc == 4 ? std::atoi(argv[3]) : 200);
    return 0;
  }
  std::fprintf(stderr, "scheduler_bench cost | interference MODEL.gguf | prefix MODEL.gguf [N]\n");
  return 2;
}

}  // namespace
}  // namespace tandem::test

int main(int argc, char** argv) { return tandem::test::Main(argc, argv); }
