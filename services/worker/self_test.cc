#include "services/worker/self_test.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace tandem {
namespace {

constexpr SessionHandle kHandle{0, 1};
constexpr int32_t kPromptTokens = 22;  // the last chunk has two rows
constexpr int32_t kChunk = 4;
constexpr int kMaxSteps = 1000;

// Spread over the vocabulary, the same on every machine.
std::vector<int32_t> TestTokens(int32_t count, int32_t vocab_size) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>((int64_t{i} * 7919 + 1) % vocab_size));
  }
  return tokens;
}

// What there is to compare of a position: the lists that its step gave, and the row computed again.
struct Row {
  Candidates lists;
  std::vector<float> logits;  // [vocab_size]
};

// One session on an engine of its own.
class Run final {
 public:
  static absl::StatusOr<std::unique_ptr<Run>> Make(int32_t step_tokens, kernels::KvFormat format,
                                                   Model& model, kernels::Ops& ops) {
    EngineOptions options;
    options.max_sessions = 1;
    options.step_tokens = step_tokens;
    options.kv_tokens = 2 * kernels::kPageTokens;
    options.context_length = std::min(model.context_length(), 2 * kernels::kPageTokens);
    options.kv_format = format;
    ASSIGN_OR_RETURN(std::unique_ptr<DecodeEngine> engine,
                     DecodeEngine::Make(options, {}, model, ops));
    return std::unique_ptr<Run>(new Run(std::move(engine)));
  }

  // The position after the tokens.
  absl::StatusOr<Row> Open(std::vector<int32_t> tokens) {
    OpenCommand open;
    open.first = kHandle;
    open.prompt_length = static_cast<int32_t>(tokens.size());
    open.max_new = 2;
    open.sampling.want_raw = true;
    open.tokens = std::move(tokens);
    position_ = open.prompt_length;
    engine_->Open(std::move(open), now_);
    return NextRow();
  }
  absl::StatusOr<Row> Extend(int32_t token) {
    ExtendCommand extend;
    extend.handle = kHandle;
    extend.position = position_;
    // A token other than the worker's draw is a change of mind, which raises the epoch.
    extend.epoch = token == drawn_ || drawn_ < 0 ? 0 : 1;
    extend.tokens = {token};
    ++position_;
    engine_->Extend(extend, now_);
    return NextRow();
  }

 private:
  explicit Run(std::unique_ptr<DecodeEngine> engine) : engine_(std::move(engine)) {}

  absl::StatusOr<Row> NextRow() {
    ASSIGN_OR_RETURN(CandidatesEvent candidates, Wait<CandidatesEvent>());
    drawn_ = candidates.candidates.summary.drawn;
    FetchCommand fetch;
    fetch.handle = kHandle;
    fetch.position = position_;
    fetch.what = FetchCommand::What::kRow;
    engine_->Fetch(fetch, now_);
    ASSIGN_OR_RETURN(FetchedEvent fetched, Wait<FetchedEvent>());
    return Row{std::move(candidates.candidates), std::move(fetched.values)};
  }

  template <typename Event>
  absl::StatusOr<Event> Wait() {
    for (int step = 0; step < kMaxSteps; ++step) {
      for (EngineEvent& event : engine_->TakeEvents()) {
        if (auto* wanted = std::get_if<Event>(&event)) return std::move(*wanted);
        if (const auto* closed = std::get_if<ClosedEvent>(&event)) {
          return Internal("the self-test's session was closed: ", closed->detail);
        }
      }
      engine_->Launch(++now_);
      ASSIGN_OR_RETURN(const bool collected, engine_->Collect(++now_));
      static_cast<void>(collected);
    }
    return Internal("the self-test's engine gave no answer in ", kMaxSteps, " steps");
  }

  const std::unique_ptr<DecodeEngine> engine_;
  Nanos now_ = 0;
  int32_t position_ = 0;
  int32_t drawn_ = -1;
};

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

absl::Status Differ(int64_t id, float a, const char* a_from, float b, const char* b_from) {
  return Internal("self-test: the logit of id ", id, " is ", a, " ", a_from, " and ", b, " ",
                  b_from);
}

absl::Status Compare(const Row& decoded, const Row& prefilled) {
  if (decoded.logits.size() != prefilled.logits.size()) {
    return Internal("self-test: rows of ", decoded.logits.size(), " and ", prefilled.logits.size(),
                    " logits");
  }
  for (size_t id = 0; id < decoded.logits.size(); ++id) {
    if (!std::isfinite(decoded.logits[id]) || !SameBits(decoded.logits[id], prefilled.logits[id])) {
      return Differ(static_cast<int64_t>(id), decoded.logits[id], "after a decode step",
                    prefilled.logits[id], "after a chunked prefill");
    }
  }
  for (const Row* row : {&decoded, &prefilled}) {
    for (const kernels::TopEntry& entry : row->lists.top) {
      if (SameBits(entry.raw, row->logits[entry.id])) continue;
      return Differ(entry.id, entry.raw, "in its step", row->logits[entry.id], "computed again");
    }
  }
  // An integer sum over every logit, so that it tells any two rows apart.
  if (decoded.lists.summary.raw_total != prefilled.lists.summary.raw_total) {
    return Internal("self-test: the row's weight is ", decoded.lists.summary.raw_total,
                    " in a decode step and ", prefilled.lists.summary.raw_total,
                    " in a chunked prefill");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SelfTest(kernels::KvFormat format, Model& model, kernels::Ops& ops) {
  const std::vector<int32_t> tokens =
      TestTokens(std::min(kPromptTokens, model.context_length() - 2), model.config().vocab_size);
  ASSIGN_OR_RETURN(const std::unique_ptr<Run> decode,
                   Run::Make(model.max_rows(), format, model, ops));
  ASSIGN_OR_RETURN(const Row before, decode->Open({tokens.begin(), tokens.end() - 1}));
  static_cast<void>(before);
  ASSIGN_OR_RETURN(const Row decoded, decode->Extend(tokens.back()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Run> prefill,
                   Run::Make(std::min(kChunk, model.max_rows()), format, model, ops));
  ASSIGN_OR_RETURN(const Row prefilled, prefill->Open(tokens));
  return Compare(decoded, prefilled);
}

}  // namespace tandem
