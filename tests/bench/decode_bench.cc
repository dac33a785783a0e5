// Speed of decode and prefill through DecodeEngine, without a network: fixed batches, steps chained
// as a worker chains them (two in flight on an asynchronous backend, tokens confirmed as they
// come). One JSON object a line.
//
//   decode_bench MODEL [--device cpu|cuda] [--batch N ...] [--context N] [--steps N] [--prefill N]
// MODEL: a .gguf file or random:NAME. Decode after prompts of `context` tokens; step times are
// those between two results. floor_ms: reading every weight once, and every K and V of the batch,
// at 4.55 TB/s (what one H200 was measured to read).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/decode_engine.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/bench/bench_support.h"

namespace tandem::test {
namespace {

constexpr double kBytesPerSecond = 4.55e12;

struct Flags {
  std::string model;
  std::string device = "cuda";
  std::vector<int32_t> batches = {1};
  int32_t context = 512;
  int32_t steps = 200;
  int32_t prefill = 2048;
};

class Bench final {
 public:
  explicit Bench(const Flags& flags)
      : flags_(flags), checkpoint_(Must(OpenCheckpoint(flags.model))) {
    ops_ = flags.device == "cuda" ? Must(kernels::MakeCudaOps({})) : Must(kernels::MakeCpuOps({}));
    const Nanos start = SteadyNow();
    model_ = Must(Model::Load(*checkpoint_, ops_->info().default_kv,
                              {.max_rows = std::max(flags.prefill, 512)}, *ops_,
                              [](int64_t, int64_t) {}));
    load_seconds_ = 1e-9 * static_cast<double>(SteadyNow() - start);
  }

  void Decode(int32_t batch) {
    const std::unique_ptr<DecodeEngine> engine = MakeEngine(batch);
    for (int32_t i = 0; i < batch; ++i) Open(i, flags_.context, engine.get());
    std::vector<double> step_ms;
    Nanos last = 0;
    int32_t warm = 0;
    while (static_cast<int32_t>(step_ms.size()) < flags_.steps) {
      const int32_t num_rows = Turn(engine.get());
      const Nanos now = SteadyNow();
      if (num_rows == batch && ++warm > 20) {
        step_ms.push_back(1e-6 * static_cast<double>(now - last));
      }
      last = now;
    }
    double sum = 0.0, squares = 0.0;
    for (const double ms : step_ms) sum += ms;
    const double mean = sum / static_cast<double>(step_ms.size());
    for (const double ms : step_ms) squares += (ms - mean) * (ms - mean);
    const double floor_ms = 1e3 * Bytes(batch) / kBytesPerSecond;
    nlohmann::json out = Header("decode");
    out["batch"] = batch;
    out["context"] = flags_.context;
    out["steps"] = step_ms.size();
    out["step_ms_mean"] = mean;
    out["step_ms_p50"] = Quantile(step_ms, 0.5);
    out["step_ms_p99"] = Quantile(step_ms, 0.99);
    out["step_ms_deviation"] = std::sqrt(squares / static_cast<double>(step_ms.size()));
    out["tokens_per_second"] = 1e3 * batch / mean;
    out["floor_ms"] = floor_ms;
    out["share_of_floor"] = floor_ms / mean;
    Print(out);
  }

  void Prefill() {
    const std::unique_ptr<DecodeEngine> engine = MakeEngine(4);
    std::vector<double> seconds;
    for (int32_t i = 0; i < 5; ++i) {
      const Nanos start = SteadyNow();
      Open(i, flags_.prefill, engine.get());
      while (Turn(engine.get()) == 0) {
      }
      seconds.push_back(1e-9 * static_cast<double>(SteadyNow() - start));
      engine->Close({{1, static_cast<uint64_t>(i + 1)}}, SteadyNow());
      while (engine->Collect(SteadyNow()).value()) {
      }
    }
    nlohmann::json out = Header("prefill");
    out["tokens"] = flags_.prefill;
    out["seconds_p50"] = Quantile(seconds, 0.5);
    out["tokens_per_second"] = flags_.prefill / Quantile(seconds, 0.5);
    Print(out);
  }

 private:
  nlohmann::json Header(const char* bench) const {
    return {{"bench", bench},
            {"model", flags_.model},
            {"device", ops_->info().device},
            {"numerics", ops_->info().numerics},
            {"load_seconds", load_seconds_}};
  }
  static void Print(const nlohmann::json& out) {
    std::puts(out.dump().c_str());
    std::fflush(stdout);
  }

  std::unique_ptr<DecodeEngine> MakeEngine(int32_t batch) const {
    EngineOptions options;
    options.max_sessions = batch;
    options.max_queued = batch;
    options.step_tokens = std::max(flags_.prefill, 512);
    options.context_length =
        std::min(model_->context_length(),
                 std::max(flags_.context + 2 * flags_.steps + 512, flags_.prefill + 64));
    options.kv_tokens = int64_t{batch} * (options.context_length + 64);
    options.kv_format = ops_->info().default_kv;
    options.prefix_cache = false;
    options.decode_slowdown = 0;  // all prompts first, then decode alone
    return Must(DecodeEngine::Make(options, {}, *model_, *ops_));
  }

  void Open(int32_t index, int32_t length, DecodeEngine* engine) const {
    OpenCommand open;
    open.first = {1, static_cast<uint64_t>(index + 1)};
    open.tokens = Tokens(static_cast<uint64_t>(index + 1), length, model_->config().vocab_size);
    open.prompt_length = length;
    open.run_ahead = 8;
    engine->Open(std::move(open), SteadyNow());
  }

  // Candidates of one step.
  int32_t Turn(DecodeEngine* engine) const {
    engine->Launch(SteadyNow());
    if (ops_->info().asynchronous) engine->Launch(SteadyNow());  // refused where two are in flight
    engine->Wait();
    TANDEM_CHECK(engine->Collect(SteadyNow()).ok());
    int32_t num_rows = 0;
    for (const EngineEvent& event : engine->TakeEvents()) {
      const auto* candidates = std::get_if<CandidatesEvent>(&event);
      if (const auto* closed = std::get_if<ClosedEvent>(&event)) {
        TANDEM_CHECK(closed->detail.empty()) << closed->detail;
      }
      if (candidates == nullptr) continue;
      ++num_rows;
      const int32_t drawn = candidates->candidates.summary.drawn;
      engine->Extend({candidates->handle,
                      candidates->position,
                      candidates->epoch,
                      {drawn >= 0 ? drawn : candidates->candidates.top[0].id}},
                     SteadyNow());
    }
    return num_rows;
  }

  // Read in a step: every weight but the embedding of a model that has its own output matrix, at
  // bf16, and the K and V of the batch.
  double Bytes(int32_t batch) const {
    const ModelConfig& config = model_->config();
    const double heads = config.attention.num_heads, kv_heads = config.attention.num_kv_heads;
    const double head_dim = config.attention.head_dim, hidden = config.hidden_size;
    const double layer =
        hidden * head_dim * (2 * heads + 2 * kv_heads) + 3 * hidden * config.ffn_size;
    const double kv = 2 * kv_heads * head_dim * (flags_.context + flags_.steps / 2.0);
    return 2 * (config.num_layers * (layer + kv * batch) + hidden * config.vocab_size);
  }

  const Flags flags_;
  const std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<Model> model_;
  double load_seconds_ = 0.0;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Speed of decode and prefill.", "decode_bench");
  app.add_option("model", flags.model, "A .gguf file or random:NAME")->required();
  app.add_option("--device", flags.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--batch", flags.batches, "Sessions that decode at once")
      ->check(CLI::Range(1, 1024));
  app.add_option("--context", flags.context, "Tokens of each prompt")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--steps", flags.steps, "Steps measured")->check(CLI::Range(10, 100000));
  app.add_option("--prefill", flags.prefill, "Tokens of the prompt prefilled")
      ->check(CLI::Range(1, 1 << 14));
  CLI11_PARSE(app, argc, argv);
  Bench bench(flags);
  for (const int32_t batch : flags.batches) bench.Decode(batch);
  bench.Prefill();
  return 0;
}

}  // namespace
}  // namespace tandem::test

int main(int argc, char** argv) { return tandem::test::Main(argc, argv); }
