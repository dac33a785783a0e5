#include "tests/engine/model/bits_matrix.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "tests/support/model_runner.h"

namespace tandem::test {
namespace {

using Tokens = std::vector<int32_t>;
// Of the logits of positions [0, n) of a sequence.
using Rows = std::vector<std::string>;

constexpr int32_t kTogether = 16;            // last tokens of a batch: one of each sequence a step
constexpr int32_t kSeparateDecodeRows = 24;  // last tokens that separate operations decode singly
constexpr int32_t kRewindChunk = 7;
constexpr int32_t kMixedChunks[] = {1, 3, 64, 17, 200};

// Seeded, different for every index.
Tokens TokensOf(int32_t index, int32_t length, int32_t vocab_size) {
  std::mt19937 random(static_cast<uint32_t>(index + 1));
  Tokens tokens(static_cast<size_t>(length));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
  }
  return tokens;
}

class Matrix final {
 public:
  Matrix(const BitsPlan& plan, Model& model, kernels::Ops& ops)
      : plan_(plan),
        model_(model),
        ops_(ops),
        tokens_(TokensOf(0, plan.length, model.config().vocab_size)) {}

  absl::StatusOr<std::vector<BitsVariant>> Compare() {
    RETURN_IF_ERROR(ComputeAlone());
    RETURN_IF_ERROR(CompareChunks(plan_.length, "prefill in one piece"));
    for (const int32_t chunk : plan_.chunks) {
      RETURN_IF_ERROR(CompareChunks(chunk, absl::StrCat("chunks of ", chunk)));
    }
    for (const int32_t count : plan_.rewinds) RETURN_IF_ERROR(CompareRewind(count));
    for (const int32_t count : plan_.prefixes) RETURN_IF_ERROR(ComparePrefix(count));
    for (const int32_t batch : plan_.batches) RETURN_IF_ERROR(CompareBatch(batch));
    if (plan_.use_separate) RETURN_IF_ERROR(CompareSeparate());
    return std::move(variants_);
  }

 private:
  // Slots of so many tokens each. Pages lie otherwise in every runner.
  absl::StatusOr<std::unique_ptr<ModelRunner>> Runner(std::vector<int32_t> slot_tokens) {
    ModelRunner::Options options;
    options.num_slots = static_cast<int32_t>(slot_tokens.size());
    options.slot_tokens = std::move(slot_tokens);
    options.max_logits_rows = model_.max_rows();
    options.kv_format = ops_.info().default_kv;
    options.page_seed = ++num_runners_;
    return ModelRunner::Make(options, model_, ops_);
  }

  // Adds the rows of the step to those of each item's slot, which stand at rows[slot].
  absl::Status Step(std::span<const ModelRunner::Work> work, bool records, ModelRunner& runner,
                    std::span<Rows> rows) {
    RETURN_IF_ERROR(runner.StepInto(work, records, &logits_));
    const auto width = static_cast<size_t>(model_.config().vocab_size);
    const float* row = logits_.data();
    for (const ModelRunner::Work& item : work) {
      for (size_t i = 0; i < item.tokens.size(); ++i, row += width) {
        rows[static_cast<size_t>(item.slot)].push_back(
            Fingerprinter().Add(row, width * sizeof(float)).Hex());
      }
    }
    return absl::OkStatus();
  }

  // In pieces of at most `chunk` tokens. rows: one for each slot up to this one.
  absl::Status Feed(int32_t slot, const Tokens& tokens, int32_t chunk, ModelRunner& runner,
                    std::span<Rows> rows) {
    for (auto from = tokens.begin(); from != tokens.end();) {
      const auto to = from + std::min<std::ptrdiff_t>(chunk, tokens.end() - from);
      const ModelRunner::Work work = {
          .slot = slot, .tokens = {from, to}, .num_logits = static_cast<int32_t>(to - from)};
      RETURN_IF_ERROR(Step({&work, 1}, /*records=*/false, runner, rows));
      from = to;
    }
    return absl::OkStatus();
  }
  absl::Status Feed(const Tokens& tokens, int32_t chunk, ModelRunner& runner, Rows* rows) {
    return Feed(0, tokens, chunk, runner, {rows, 1});
  }

  // What everything else is compared with. A row counts as differing where it is not finite: equal
  // bits would say nothing then.
  absl::Status ComputeAlone() {
    BitsVariant variant{.name = "alone, token by token: not finite"};
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner, Runner({plan_.length}));
    for (size_t i = 0; i < tokens_.size(); ++i) {
      RETURN_IF_ERROR(Feed({tokens_[i]}, 1, *runner, &alone_));
      ++variant.rows;
      if (LatestIsFinite()) continue;
      if (variant.differing++ == 0) variant.first = absl::StrCat("position ", i);
    }
    variants_.push_back(std::move(variant));
    return absl::OkStatus();
  }
  bool LatestIsFinite() const {
    constexpr uint32_t kExponent = 0x7F800000;
    return std::none_of(logits_.begin(), logits_.end(), [](float value) {
      return (std::bit_cast<uint32_t>(value) & kExponent) == kExponent;
    });
  }

  // Rows of positions from `first` on.
  void Add(const Rows& rows, const Rows& want, int32_t first, const std::string& what,
           BitsVariant* variant) {
    for (size_t i = 0; i < rows.size(); ++i) {
      ++variant->rows;
      const size_t position = static_cast<size_t>(first) + i;
      if (position < want.size() && rows[i] == want[position]) continue;
      if (variant->differing++ == 0) variant->first = absl::StrCat(what, "position ", position);
    }
  }

  absl::Status CompareChunks(int32_t chunk, const std::string& name) {
    BitsVariant variant{.name = name};
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner, Runner({plan_.length}));
    Rows rows;
    RETURN_IF_ERROR(Feed(tokens_, chunk, *runner, &rows));
    Add(rows, alone_, 0, "", &variant);
    variants_.push_back(std::move(variant));
    return absl::OkStatus();
  }

  absl::Status CompareRewind(int32_t count) {
    BitsVariant variant{.name = absl::StrCat("after a rewind of ", count)};
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner, Runner({plan_.length}));
    const auto split = tokens_.end() - count;
    Rows rows, wrong_rows;
    RETURN_IF_ERROR(Feed({tokens_.begin(), split}, plan_.length, *runner, &rows));
    Tokens wrong(split, tokens_.end());
    for (int32_t& token : wrong) token = (token + 1) % model_.config().vocab_size;
    RETURN_IF_ERROR(Feed(wrong, count, *runner, &wrong_rows));
    runner->Rewind(0, count);
    RETURN_IF_ERROR(Feed({split, tokens_.end()}, kRewindChunk, *runner, &rows));
    Add(rows, alone_, 0, "", &variant);
    variants_.push_back(std::move(variant));
    return absl::OkStatus();
  }

  // The slot that shares, and then the slot whose pages are shared, go on.
  absl::Status ComparePrefix(int32_t count) {
    BitsVariant variant{.name = absl::StrCat("over ", count, " tokens of another slot")};
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner,
                     Runner({plan_.length, plan_.length}));
    const auto split = tokens_.begin() + count;
    std::vector<Rows> rows(2);
    RETURN_IF_ERROR(Feed({tokens_.begin(), split}, plan_.length, *runner, &rows[0]));
    runner->SharePrefix(0, 1, count);
    RETURN_IF_ERROR(Feed(1, {split, tokens_.end()}, kernels::kPageTokens, *runner, rows));
    RETURN_IF_ERROR(Feed({split, tokens_.end()}, plan_.length, *runner, &rows[0]));
    Add(rows[0], alone_, 0, "its owner's ", &variant);
    Add(rows[1], alone_, count, "", &variant);
    variants_.push_back(std::move(variant));
    return absl::OkStatus();
  }

  // Sequence 0 is the long one; some others are long enough for several splits of the attention.
  int32_t LengthOf(int32_t index) const {
    if (index == 0) return plan_.length;
    if (index % 32 == 1) return std::min(plan_.length, plan_.length / 4 + kTogether + 8);
    return std::min(plan_.length, kTogether + 1 + index * 37 % 40);
  }

  // Prompts in mixed chunks side by side, then one token of each a step, as a worker does it: with
  // positions left to the device for every second one, recorded where the backend does that.
  absl::Status CompareBatch(int32_t batch) {
    BitsVariant variant{.name = absl::StrCat("in a batch of ", batch)};
    std::vector<Tokens> prompts;
    std::vector<int32_t> lengths;
    for (int32_t i = 0; i < batch; ++i) {
      lengths.push_back(LengthOf(i));
      prompts.push_back(i == 0 ? tokens_ : TokensOf(i, lengths.back(), model_.config().vocab_size));
    }
    std::vector<Rows> rows(prompts.size());
    {
      ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner, Runner(lengths));
      std::vector<ModelRunner::Work> work;
      for (int32_t step = 0; step == 0 || !work.empty(); ++step) {
        work.clear();
        int32_t room = model_.max_rows();
        for (int32_t i = 0; i < batch; ++i) {
          const auto index = static_cast<size_t>(i);
          const int32_t chunk =
              std::min({kMixedChunks[static_cast<size_t>(step + i) % std::size(kMixedChunks)],
                        lengths[index] - kTogether - runner->Length(i), room});
          if (chunk <= 0) continue;
          const auto from = prompts[index].begin() + runner->Length(i);
          work.push_back({.slot = i, .tokens = {from, from + chunk}, .num_logits = chunk});
          room -= chunk;
        }
        if (!work.empty()) RETURN_IF_ERROR(Step(work, false, *runner, rows));
      }
      for (int32_t step = 0; step < kTogether; ++step) {
        work.clear();
        for (int32_t i = 0; i < batch; ++i) {
          const int32_t token = prompts[static_cast<size_t>(i)][runner->Length(i)];
          work.push_back({.slot = i, .tokens = {token}, .num_logits = 1, .continues = i % 2 == 0});
        }
        RETURN_IF_ERROR(Step(work, ops_.info().records, *runner, rows));
      }
    }
    Add(rows[0], alone_, 0, "sequence 0, ", &variant);
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner, Runner({plan_.length}));
    for (size_t i = 1; i < prompts.size(); ++i) {
      Rows want;
      runner->Reset(0);
      RETURN_IF_ERROR(Feed(prompts[i], plan_.length, *runner, &want));
      Add(rows[i], want, 0, absl::StrCat("sequence ", i, ", "), &variant);
    }
    variants_.push_back(std::move(variant));
    return absl::OkStatus();
  }

  absl::Status CompareSeparate() {
    BitsVariant variant{.name = "by separate operations"};
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner, Runner({plan_.length}));
    const auto split = tokens_.end() - std::min(kSeparateDecodeRows, plan_.length);
    Rows rows;
    plan_.use_separate(true);
    absl::Status status = Feed({tokens_.begin(), split}, plan_.length, *runner, &rows);
    if (status.ok()) status = Feed({split, tokens_.end()}, 1, *runner, &rows);
    plan_.use_separate(false);
    RETURN_IF_ERROR(status);
    Add(rows, alone_, 0, "", &variant);
    variants_.push_back(std::move(variant));
    return absl::OkStatus();
  }

  const BitsPlan& plan_;
  Model& model_;
  kernels::Ops& ops_;
  const Tokens tokens_;
  uint64_t num_runners_ = 0;
  std::vector<float> logits_;  // of the latest step
  Rows alone_;
  std::vector<BitsVariant> variants_;
};

}  // namespace

absl::StatusOr<std::vector<BitsVariant>> CompareBits(const BitsPlan& plan, Model& model,
                                                     kernels::Ops& ops) {
  return Matrix(plan, model, ops).Compare();
}

int64_t NumDiffering(const std::vector<BitsVariant>& variants) {
  int64_t sum = 0;
  for (const BitsVariant& variant : variants) sum += variant.differing;
  return sum;
}

std::string BitsTable(const std::vector<BitsVariant>& variants) {
  std::string text;
  for (const BitsVariant& variant : variants) {
    absl::StrAppendFormat(&text, "  %-32s %7d rows, %7d differ%s%s\n", variant.name, variant.rows,
                          variant.differing, variant.first.empty() ? "" : ", first ",
                          variant.first);
  }
  return text;
}

}  // namespace tandem::test
