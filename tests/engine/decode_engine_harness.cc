#include "tests/engine/decode_engine_harness.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "engine/base/check.h"
#include "engine/checkpoint/checkpoint.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/reference/reference_ops.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace tandem::test {
namespace {

// The tensors of a checkpoint under another attention window per layer.
class WindowedCheckpoint final : public Checkpoint {
 public:
  WindowedCheckpoint(std::unique_ptr<Checkpoint> base, std::vector<int32_t> windows)
      : base_(std::move(base)), config_(base_->config()) {
    if (!windows.empty()) config_.layer_windows = std::move(windows);
  }
  const ModelConfig& config() const override { return config_; }
  bool Has(TensorRole role, int32_t layer) const override { return base_->Has(role, layer); }
  absl::StatusOr<kernels::HostMatrix> Matrix(TensorRole role, int32_t layer) const override {
    return base_->Matrix(role, layer);
  }
  absl::StatusOr<std::vector<float>> Vector(TensorRole role, int32_t layer) const override {
    return base_->Vector(role, layer);
  }
  absl::StatusOr<TokenizerData> Tokenizer() const override { return base_->Tokenizer(); }
  std::string WeightsFingerprint() const override { return base_->WeightsFingerprint(); }

 private:
  std::unique_ptr<Checkpoint> base_;
  ModelConfig config_;
};

template <typename Entry>
bool SameEntries(const std::vector<Entry>& a, const std::vector<Entry>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Entry)) == 0);
}

}  // namespace

TinyWorld::TinyWorld(const Options& options) {
  TinyModelOptions tiny;
  GgufWriter writer = TinyModelWriter(tiny);
  if (options.nan_token >= 0) {
    std::string& bytes = writer.FindTensor("token_embd.weight")->bytes;
    const size_t line = static_cast<size_t>(tiny.hidden_size) * sizeof(float);
    std::memset(bytes.data() + static_cast<size_t>(options.nan_token) * line, 0xFF, line);
  }
  if (!options.nan_tensor.empty()) {
    std::memset(writer.FindTensor(options.nan_tensor)->bytes.data(), 0xFF, sizeof(float));
  }
  const std::string path = testing::TempDir() + "/decode_engine_tiny.gguf";
  TANDEM_CHECK(WriteFile(path, writer.Build())) << path;
  absl::StatusOr<std::unique_ptr<Checkpoint>> file = OpenCheckpoint(path);
  TANDEM_CHECK(file.ok()) << file.status().ToString();
  const WindowedCheckpoint checkpoint(*std::move(file), options.layer_windows);
  std::unique_ptr<kernels::Ops> backend = kernels::MakeReferenceOps(kernels::ActDType::kF32);
  if (options.cpu) {
    absl::StatusOr<std::unique_ptr<kernels::Ops>> made = kernels::MakeCpuOps({});
    TANDEM_CHECK(made.ok()) << made.status().ToString();
    backend = *std::move(made);
  }
  ops = std::make_unique<DeferredOps>(std::move(backend));
  absl::StatusOr<std::unique_ptr<Model>> loaded =
      Model::Load(checkpoint, options.kv_format,
                  {.max_rows = options.max_rows, .checked = options.checked}, *ops, nullptr);
  TANDEM_CHECK(loaded.ok()) << loaded.status().ToString();
  model = *std::move(loaded);
}

std::unique_ptr<DecodeEngine> TinyWorld::MakeEngine(const EngineOptions& options) const {
  absl::StatusOr<std::unique_ptr<DecodeEngine>> engine =
      DecodeEngine::Make(options, {}, *model, *ops);
  TANDEM_CHECK(engine.ok()) << engine.status().ToString();
  return *std::move(engine);
}

std::vector<float> TinyWorld::Logits(const std::vector<int32_t>& tokens) const {
  ModelRunner::Options options;
  options.tokens_per_slot = model->context_length();
  absl::StatusOr<std::unique_ptr<ModelRunner>> runner = ModelRunner::Make(options, *model, *ops);
  TANDEM_CHECK(runner.ok()) << runner.status().ToString();
  absl::StatusOr<std::vector<std::vector<float>>> rows =
      (*runner)->Run(0, tokens, model->max_rows(), 1);
  TANDEM_CHECK(rows.ok()) << rows.status().ToString();
  return std::move(rows->front());
}

const TinyWorld& PlainWorld() {
  static const TinyWorld* const world = new TinyWorld(TinyWorld::Options{});
  return *world;
}

std::vector<int32_t> RandomTokens(uint64_t seed, int32_t count, int32_t vocab_size) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % uint64_t(vocab_size));
  return tokens;
}

void Peer::Open(uint64_t number, std::vector<int32_t> tokens, int32_t max_new,
                const SamplingParameters& sampling, int32_t choices) {
  OpenCommand open;
  open.first = {0, number};
  open.choices = choices;
  open.prompt_length = static_cast<int32_t>(tokens.size());
  open.tokens = std::move(tokens);
  open.max_new = max_new;
  open.sampling = sampling;
  engine_.Open(std::move(open), 1);
}

void Peer::Extend(uint64_t number, int32_t position, uint32_t epoch, std::vector<int32_t> tokens) {
  engine_.Extend({{0, number}, position, epoch, std::move(tokens)}, 1);
}

void Peer::Fetch(uint64_t number, int32_t position, FetchCommand::What what) {
  FetchCommand fetch;
  fetch.handle = {0, number};
  fetch.position = position;
  fetch.what = what;
  engine_.Fetch(fetch, 1);
}

void Peer::FetchMore(uint64_t number, int32_t position, int32_t num_top, int32_t num_perturbed) {
  FetchCommand fetch;
  fetch.handle = {0, number};
  fetch.position = position;
  fetch.num_top = num_top;
  fetch.num_perturbed = num_perturbed;
  engine_.Fetch(fetch, 1);
}

void Peer::Run() {
  while (engine_.Launch(1)) {
    const absl::StatusOr<bool> collected = engine_.Collect(1);
    ASSERT_TRUE(collected.ok()) << collected.status().ToString();
  }
}

void Peer::Drain() {
  for (EngineEvent& event : engine_.TakeEvents()) events_.push_back(std::move(event));
}

void Peer::ExpectRefused(uint64_t number, const std::string& text) {
  const std::vector<ClosedEvent> closed = All<ClosedEvent>(number);
  ASSERT_EQ(closed.size(), 1u) << "handle " << number << ", for: " << text;
  EXPECT_EQ(closed[0].reason, ClosedEvent::Reason::kRefused);
  EXPECT_NE(closed[0].detail.find(text), std::string::npos) << closed[0].detail;
}

SessionHandle TextTier::StartChoices(const Request& request, int32_t choices) {
  OpenCommand open;
  open.first = {request.stream, next_number_};
  open.choices = choices;
  open.first_choice = request.choice;
  open.tokens = request.tokens;
  open.prompt_length = request.prompt_length > 0 ? request.prompt_length
                                                 : static_cast<int32_t>(request.tokens.size());
  open.max_new = request.max_new;
  open.sampling = request.sampling;
  open.deadline = request.deadline;
  open.priority = request.priority;
  open.run_ahead = request.run_ahead;
  open.drafts = request.drafts;
  open.salt = request.salt;
  for (int32_t i = 0; i < choices; ++i) {
    Session& session = sessions_[{request.stream, next_number_++}];
    session.request = request;
    session.decider = std::make_unique<Decider>(request.sampling, request.choice + uint32_t(i),
                                                open.prompt_length, request.tokens, vocab_size_,
                                                std::span<const uint32_t>());
  }
  const SessionHandle first = open.first;
  engine_.Open(std::move(open), now);
  return first;
}

bool TextTier::Turn(int32_t depth) {
  int32_t launched = 0;
  while (launched < depth && engine_.Launch(now)) ++launched;
  const absl::StatusOr<bool> collected = engine_.Collect(now);
  EXPECT_TRUE(collected.ok()) << collected.status().ToString();
  std::vector<EngineEvent> events = engine_.TakeEvents();
  const bool had_events = !events.empty();
  Handle(std::move(events));
  return launched > 0 || had_events || (collected.ok() && *collected);
}

void TextTier::Run(int32_t depth) {
  int32_t turns = 0;
  while (Turn(depth)) {
    ASSERT_LT(++turns, 100000) << "the engine does not come to rest";
  }
}

void TextTier::Handle(std::vector<EngineEvent> events) {
  for (EngineEvent& event : events) {
    const SessionHandle handle = std::visit([](const auto& e) { return e.handle; }, event);
    Session& session = sessions_.at(handle);
    EXPECT_TRUE(session.outcome.closed.empty())
        << "an event follows Closed of handle " << handle.number;
    if (std::holds_alternative<OpenedEvent>(event)) {
      EXPECT_FALSE(session.outcome.opened);
      session.outcome.opened = true;
    } else if (const auto* candidates = std::get_if<CandidatesEvent>(&event)) {
      EXPECT_TRUE(session.outcome.opened);
      // What ran ahead of the last token is of no use.
      if (static_cast<int32_t>(session.outcome.output.size()) >= session.request.wanted) continue;
      EXPECT_EQ(candidates->position, session.decider->position());
      EXPECT_EQ(candidates->epoch, session.epoch);
      session.last = candidates->candidates;
      Decide(handle, &session, candidates->candidates, false);
    } else if (const auto* fetched = std::get_if<FetchedEvent>(&event)) {
      EXPECT_EQ(fetched->position, session.decider->position());
      Decide(handle, &session, fetched->candidates, true);
    } else if (auto* closed = std::get_if<ClosedEvent>(&event)) {
      session.outcome.closed.push_back(std::move(*closed));
    }
  }
}

void TextTier::Decide(const SessionHandle& handle, Session* session, const Candidates& candidates,
                      bool is_fetched) {
  const Decision decision = session->decider->DecideFromCandidates(candidates);
  switch (decision.kind) {
    case Decision::Kind::kToken:
      if (session->last.summary.drawn >= 0 && session->last.summary.drawn != decision.token) {
        ++session->outcome.misses;
      }
      session->outcome.candidates.push_back(session->last);
      Accept(handle, session, decision.token);
      return;
    case Decision::Kind::kUndecided: {
      EXPECT_EQ(candidates.summary.drawn, -1);
      ++session->outcome.fetched;
      FetchCommand fetch;
      fetch.handle = handle;
      fetch.position = session->decider->position();
      fetch.num_top = std::min(kernels::kMaxTop, 2 * std::max(1, candidates.summary.num_top));
      fetch.num_perturbed =
          std::min(kernels::kMaxPerturbed, 2 * std::max(1, candidates.summary.num_perturbed));
      engine_.Fetch(fetch, now);
      return;
    }
    case Decision::Kind::kFault:
      session->outcome.faults.push_back(decision.why);
      engine_.Close({handle}, 1);
      return;
    case Decision::Kind::kNoToken:
    case Decision::Kind::kNonFinite:
      engine_.Close({handle}, 1);
      return;
  }
  ADD_FAILURE() << "is_fetched " << is_fetched;
}

void TextTier::Accept(const SessionHandle& handle, Session* session, int32_t token) {
  ExtendCommand extend;
  extend.handle = handle;
  extend.position = session->decider->position();
  extend.epoch = session->epoch;
  extend.tokens = {token};
  session->decider->Append(token);
  session->outcome.output.push_back(token);
  if (static_cast<int32_t>(session->outcome.output.size()) >= session->request.wanted) {
    engine_.Close({handle}, 1);
  } else {
    engine_.Extend(extend, now);
  }
}

std::vector<const Outcome*> TextTier::outcomes() const {
  std::vector<const Outcome*> all;
  for (const auto& [handle, session] : sessions_) all.push_back(&session.outcome);
  return all;
}

Outcome RunAlone(const TinyWorld& world, const EngineOptions& options, const Request& request) {
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(options);
  TextTier tier(*engine, world.vocab_size());
  const SessionHandle handle = tier.Start(request);
  tier.Run();
  EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  return tier.outcome(handle);
}

testing::AssertionResult SameBits(const Candidates& a, const Candidates& b) {
  const auto differ = [](const char* what) {
    return testing::AssertionFailure() << what << " differs";
  };
  const kernels::RowSummary& x = a.summary;
  const kernels::RowSummary& y = b.summary;
  if (x.num_in_row != y.num_in_row || x.row_max != y.row_max ||
      x.next_perturbed != y.next_perturbed || x.total_weight != y.total_weight ||
      x.top_k_weight != y.top_k_weight || x.drawn != y.drawn || x.raw_total != y.raw_total) {
    return differ("the summary");
  }
  if (!SameEntries(a.top, b.top)) return differ("the top list");
  if (!SameEntries(a.perturbed, b.perturbed)) return differ("the perturbed list");
  if (!SameEntries(a.raw_top, b.raw_top)) return differ("the raw list");
  if (!SameEntries(a.reported, b.reported)) return differ("the reported list");
  return testing::AssertionSuccess();
}

std::vector<Request> MixedRequests(int32_t count, int32_t vocab_size) {
  std::mt19937_64 random(2024);
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % uint64_t(n)); };
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    Request request;
    request.tokens = RandomTokens(1000 + uint64_t(i), 1 + below(150), vocab_size);
    request.prompt_length = 1 + below(static_cast<int32_t>(request.tokens.size()));
    request.wanted = 6 + below(10);
    request.max_new = 200;
    SamplingParameters& p = request.sampling;
    p.seed = random();
    const float temperatures[] = {0.0f, 0.7f, 1.0f, 1.7f};
    p.temperature = temperatures[below(4)];
    if (below(2) == 0) p.top_k = 1 + below(60);
    if (below(2) == 0) p.top_p = 0.9f;
    if (below(3) == 0) p.min_p = 0.02f;
    if (below(2) == 0) p.repetition_penalty = 1.3f;
    if (below(3) == 0) p.presence_penalty = 0.4f;
    if (below(3) == 0) p.frequency_penalty = 0.2f;
    if (below(3) == 0) p.repetition_window = 20;
    if (below(4) == 0) p.logit_bias = {{below(vocab_size), 3.0f}};
    if (below(4) == 0) p.banned_ids = {1, 2, 3};
    if (below(4) == 0) {
      p.end_ids = {2};
      p.min_tokens = 4;
    }
    if (below(4) == 0) {
      p.want_raw = true;
      p.num_raw_top = 5;
      p.report_ids = {7, 9};
    }
    if (below(3) == 0) {
      p.num_top = 1 + below(4);
      p.num_perturbed = 1;
    }
    request.choice = static_cast<uint32_t>(below(3));
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace tandem::test
