// What drafts give, through DecodeEngine, without a network: the same requests with and without
// them, in turns, tokens confirmed as they come. One JSON object a line.
//
//   drafts_bench MODEL.gguf [--device cpu|cuda] [--task TASK ...] [--batch N ...] [--tokens N]
//                [--rounds N] [--drafts N]
//
// Tasks: "copy-edit", a paragraph to be repeated with a word changed, greedy; "story", greedy;
// "sampled", a story at temperature 1; "random", prompts of random tokens at temperature 1. MODEL
// has to know ChatML. Measured while all sessions run. ratio: tokens a second of the rounds with
// drafts by that of those without, of each the best round, which other processes disturbed least;
// processor_ratio: the same of processor time.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/decode_engine.h"
#include "engine/text/tokenizer.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/bench/bench_support.h"

namespace tandem::test {
namespace {

constexpr char kParagraph[] =
    "The lighthouse at the end of the pier was built in 1874, when the harbour served more than "
    "two "
    "hundred fishing boats. Its lamp burned whale oil at first, and a keeper climbed the "
    "ninety-two "
    "steps every evening to light it. In 1931 the lamp was replaced by an electric one, and the "
    "keeper's cottage became a small museum, which shows charts, ropes and a collection of old "
    "brass instruments. On clear nights the light can be seen from the island of Merrow, eighteen "
    "miles to the west.";

struct Flags {
  std::string model;
  std::string device = "cpu";
  std::vector<int32_t> batches = {1};
  std::vector<std::string> tasks = {"copy-edit", "story", "sampled", "random"};
  int32_t tokens = 120;
  int32_t rounds = 3;
  int32_t drafts = 8;
};

struct Result {
  // Of all sessions, from the first token of the last one until the first one has its last: while
  // all of them ran.
  int64_t tokens = 0;
  double seconds = 0;
  double processor_seconds = 0;
  int64_t steps = 0;
  int64_t drafted = 0;
  int64_t taken = 0;
  std::vector<std::vector<int32_t>> output;
};

struct Rates {
  double best = 0;  // tokens per second
  void Add(int64_t tokens, double seconds) {
    best = std::max(best, static_cast<double>(tokens) / seconds);
  }
};

std::string Chat(const std::string& text) {
  return "<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n";
}

class Bench final {
 public:
  explicit Bench(const Flags& flags)
      : flags_(flags), checkpoint_(Must(OpenCheckpoint(flags.model))) {
    tokenizer_ = Must(MakeTokenizer(Must(checkpoint_->Tokenizer())));
    ops_ = flags.device == "cuda" ? Must(kernels::MakeCudaOps({})) : Must(kernels::MakeCpuOps({}));
    model_ = Must(Model::Load(*checkpoint_, ops_->info().default_kv, {.max_rows = 512}, *ops_,
                              [](int64_t, int64_t) {}));
  }

  void Run(const std::string& task, int32_t batch) {
    Rates with, without, processor_with, processor_without;
    Result last;
    for (int32_t round = -1; round < flags_.rounds; ++round) {
      Result plain;
      for (const bool is_plain : {round % 2 == 0, round % 2 != 0}) {
        (is_plain ? plain : last) = Round(task, batch, is_plain ? 0 : flags_.drafts);
      }
      TANDEM_CHECK(plain.output == last.output) << task << ": drafts changed a token";
      if (round < 0) continue;  // the first one warms up
      without.Add(plain.tokens, plain.seconds);
      with.Add(last.tokens, last.seconds);
      processor_without.Add(plain.tokens, plain.processor_seconds);
      processor_with.Add(last.tokens, last.processor_seconds);
    }
    nlohmann::json out;
    out["bench"] = "drafts";
    out["task"] = task;
    out["device"] = ops_->info().device;
    out["batch"] = batch;
    out["tokens"] = flags_.tokens;
    out["tokens_per_second_without"] = without.best;
    out["tokens_per_second_with"] = with.best;
    out["ratio"] = with.best / without.best;
    out["processor_ratio"] = processor_with.best / processor_without.best;
    out["steps_with"] = last.steps;
    out["drafted"] = last.drafted;
    out["taken"] = last.taken;
    std::puts(out.dump().c_str());
    std::fflush(stdout);
  }

 private:
  std::vector<int32_t> Prompt(const std::string& task, int32_t index) const {
    if (task == "random") {
      return Tokens(static_cast<uint64_t>(index) + 1, 200, model_->config().vocab_size);
    }
    const std::string text =
        task == "copy-edit"
            ? std::string(
                  "Repeat the following text word for word, but write \"green\" in place "
                  "of \"brass\":\n\n") +
                  kParagraph
            : "Write a long story about a fox number " + std::to_string(index) + ".";
    return Must(tokenizer_->Encode(Chat(text), {.parse_special = true})).ids;
  }

  Result Round(const std::string& task, int32_t batch, int32_t drafts) const {
    EngineOptions options;
    options.max_sessions = batch;
    options.max_queued = batch;
    options.step_tokens = 512;
    options.context_length = std::min(model_->context_length(), 2048);
    options.kv_tokens = int64_t{batch} * 2048;
    options.kv_format = ops_->info().default_kv;
    options.max_run_ahead = 16;
    options.max_drafts = std::max(1, flags_.drafts);
    options.prefix_cache = false;
    const std::unique_ptr<DecodeEngine> engine =
        Must(DecodeEngine::Make(options, {}, *model_, *ops_));
    for (int32_t i = 0; i < batch; ++i) {
      OpenCommand open;
      open.first = {1, static_cast<uint64_t>(i)};
      open.tokens = Prompt(task, i);
      open.prompt_length = static_cast<int32_t>(open.tokens.size());
      open.max_new = flags_.tokens;
      open.sampling.temperature = task == "random" || task == "sampled" ? 1.0f : 0.0f;
      open.sampling.seed = static_cast<uint64_t>(i) + 1;
      open.run_ahead = 4 + drafts;
      open.drafts = drafts;
      engine->Open(std::move(open), SteadyNow());
    }
    Result out;
    out.output.resize(static_cast<size_t>(batch));
    int32_t num_done = 0, num_begun = 0;
    Nanos begin = 0;
    std::clock_t processor_begin = 0;
    int64_t first_step = 0;
    int64_t num_tokens = 0, first_tokens = 0;
    while (num_done < batch) {
      engine->Launch(SteadyNow());
      if (ops_->info().asynchronous) engine->Launch(SteadyNow());
      engine->Wait();
      TANDEM_CHECK(engine->Collect(SteadyNow()).ok());
      for (const EngineEvent& event : engine->TakeEvents()) {
        const auto* candidates = std::get_if<CandidatesEvent>(&event);
        if (candidates == nullptr) continue;
        const int32_t drawn = candidates->candidates.summary.drawn;
        const int32_t token = drawn >= 0 ? drawn : candidates->candidates.top[0].id;
        std::vector<int32_t>& output = out.output[candidates->handle.number];
        num_begun += output.empty();
        output.push_back(token);
        ++num_tokens;
        num_done += static_cast<int32_t>(output.size()) == flags_.tokens;
        engine->Extend({candidates->handle, candidates->position, candidates->epoch, {token}},
                       SteadyNow());
      }
      if (begin == 0 && num_begun == batch) {
        begin = SteadyNow();
        processor_begin = std::clock();
        first_step = engine->load().steps;
        first_tokens = num_tokens;
      }
      if (num_done > 0 && out.tokens == 0) {
        TANDEM_CHECK(begin != 0) << "one session ended before the last one began: more --tokens";
        out.tokens = num_tokens - first_tokens;
        out.seconds = 1e-9 * static_cast<double>(SteadyNow() - begin);
        out.processor_seconds = static_cast<double>(std::clock() - processor_begin) /
                                static_cast<double>(CLOCKS_PER_SEC);
        out.steps = engine->load().steps - first_step;
      }
    }
    out.drafted = engine->load().drafted_tokens;
    out.taken = engine->load().taken_drafts;
    return out;
  }

  const Flags flags_;
  const std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<Model> model_;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("What drafts give.", "drafts_bench");
  app.add_option("model", flags.model, "A .gguf file")->required();
  app.add_option("--device", flags.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--batch", flags.batches, "Sessions at once")->check(CLI::Range(1, 256));
  app.add_option("--task", flags.tasks)->check(CLI::IsMember(flags.tasks));
  app.add_option("--tokens", flags.tokens, "Output tokens of each")->check(CLI::Range(2, 1000));
  app.add_option("--rounds", flags.rounds, "Of each kind, in turns")->check(CLI::Range(1, 100));
  app.add_option("--drafts", flags.drafts, "Most of a step")->check(CLI::Range(1, 12));
  CLI11_PARSE(app, argc, argv);
  Bench bench(flags);
  for (const int32_t batch : flags.batches) {
    for (const std::string& task : flags.tasks) bench.Run(task, batch);
  }
  return 0;
}

}  // namespace
}  // namespace tandem::test

int main(int argc, char** argv) { return tandem::test::Main(argc, argv); }
