// The bits contract: the logits of a position depend on the tokens before it alone. Whole model,
// bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/forwarding_ops.h"
#include "tests/kernels/test_model.h"

namespace tandem::kernels {
namespace {

constexpr int32_t kVocab = 101;

// Steps of a slot's prompt: chunk sizes in turn, until the prompt is through.
struct Schedule {
  std::string name;
  std::vector<int32_t> chunks;
};

ModelOptions Options(const Ops& ops) {
  ModelOptions options;
  options.num_layers = 2;
  options.kv = ops.info().default_kv;
  options.dtypes = {DType::kQ4_1, DType::kQ8_0, DType::kF32};
  return options;
}

// Logits of every position of the tokens, [n, vocab_size], run in slot 0 in chunks.
std::vector<float> AllLogits(TestModel& model, const std::vector<int32_t>& tokens,
                             const std::vector<int32_t>& chunks) {
  model.SetTokens(0, tokens);
  std::vector<float> logits;
  const int32_t length = static_cast<int32_t>(tokens.size());
  for (int32_t begin = 0, i = 0; begin < length; ++i) {
    const int32_t end = std::min(length, begin + chunks[i % chunks.size()]);
    std::vector<TestRow> rows;
    std::vector<int32_t> logits_rows;
    for (int32_t position = begin; position < end; ++position) {
      logits_rows.push_back(static_cast<int32_t>(rows.size()));
      rows.push_back({0, position});
    }
    const std::vector<float> part = model.Forward(rows, logits_rows);
    logits.insert(logits.end(), part.begin(), part.end());
    begin = end;
  }
  return logits;
}

class BitsTest : public testing::TestWithParam<Backend> {
 protected:
  std::unique_ptr<TestModel> Make(Ops& ops, const ModelOptions& options, uint32_t page_seed = 1) {
    absl::StatusOr<std::unique_ptr<TestModel>> model = TestModel::Make(ops, options, page_seed);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  // Prefill whole, in chunks, and token by token.
  void ExpectChunksDoNotMatter(const ModelOptions& options, int32_t length) {
    const std::vector<int32_t> tokens = random_.Tokens(length, kVocab);
    const std::vector<float> whole = AllLogits(*Make(*ops_, options), tokens, {length});
    for (const Schedule& schedule : {Schedule{"decode", {1}}, Schedule{"chunks of 37", {37}},
                                     Schedule{"pages", {64}}, Schedule{"ragged", {3, 61, 1, 17}}}) {
      ExpectSameBits(AllLogits(*Make(*ops_, options), tokens, schedule.chunks), whole,
                     schedule.name);
    }
  }

  const std::unique_ptr<Ops> ops_ = GetParam().make();
  RandomData random_{11};
};

TEST_P(BitsTest, PrefillChunksAndDecodeGiveTheSameLogits) {
  ExpectChunksDoNotMatter(Options(*ops_), 150);
}

TEST_P(BitsTest, B085_AlsoWithAWindow) {
  for (const int32_t length : {47, 48, 49, 144}) {
    ModelOptions options = Options(*ops_);
    options.window = 48;
    ExpectChunksDoNotMatter(options, length);
  }
}

TEST_P(BitsTest, AlsoWithEveryExtra) {
  ModelOptions options = Options(*ops_);
  options.shape = {5, 1, 80};
  options.has_bias = options.has_qk_norm = options.has_post_norm = true;
  options.soft_cap = 30.0f;
  options.logit_cap = 20.0f;
  options.window = 30;
  options.gate = GateKind::kGeluTanh;
  options.pairs = RopePairs::kInterleaved;
  options.dtypes = {DType::kF32, DType::kF16};
  ExpectChunksDoNotMatter(options, 70);
}

// Each feature is right alone; together they must be too.
TEST_P(BitsTest, B083_CacheFormatsWindowsAndChunksTogether) {
  for (const KvFormat format :
       {KvFormat::kF32, KvFormat::kBF16, KvFormat::kFp8E4M3, KvFormat::kInt8}) {
    for (const int32_t window : {0, 33}) {
      ModelOptions options = Options(*ops_);
      options.kv = format;
      options.window = window;
      if (!ops_->SupportsAttention(options.shape, format, 0.0f, window).ok()) continue;
      SCOPED_TRACE(std::string(Name(format)) + ", window " + std::to_string(window));
      ExpectChunksDoNotMatter(options, 70);
    }
  }
}

TEST_P(BitsTest, PagePlacementDoesNotMatter) {
  const std::vector<int32_t> tokens = random_.Tokens(140, kVocab);
  const std::vector<float> want = AllLogits(*Make(*ops_, Options(*ops_)), tokens, {140});
  for (uint32_t page_seed = 2; page_seed < 5; ++page_seed) {
    ExpectSameBits(AllLogits(*Make(*ops_, Options(*ops_), page_seed), tokens, {140}), want,
                   "pages " + std::to_string(page_seed));
  }
}

TEST_P(BitsTest, B111_ARowIsTheSameAloneAndInABatch) {
  ModelOptions options = Options(*ops_);
  options.num_slots = 70;
  options.context_length = 128;
  const std::unique_ptr<TestModel> model = Make(*ops_, options);
  std::vector<int32_t> lengths;
  for (int32_t slot = 0; slot < options.num_slots; ++slot) {
    lengths.push_back(1 + random_.Below(100));
    model->SetTokens(slot, random_.Tokens(lengths[slot], kVocab));
    std::vector<TestRow> prompt;
    for (int32_t position = 0; position + 1 < lengths[slot]; ++position) {
      prompt.push_back({slot, position});
    }
    if (!prompt.empty()) model->Forward(prompt, {});
  }
  std::vector<std::vector<float>> alone;
  for (int32_t slot = 0; slot < options.num_slots; ++slot) {
    alone.push_back(model->Forward({{slot, -1}}, {0}));
  }
  for (const int32_t batch : {2, 3, 5, 8, 16, 17, 33, 70}) {
    const int32_t first = random_.Below(options.num_slots - batch + 1);
    std::vector<TestRow> rows;
    std::vector<int32_t> logits_rows;
    for (int32_t i = 0; i < batch; ++i) {
      if (i % 7 == 3) rows.push_back({-1, -1});  // padding among them
      logits_rows.push_back(static_cast<int32_t>(rows.size()));
      rows.push_back({first + i, -1});
    }
    const std::vector<float> logits = model->Forward(rows, logits_rows);
    for (int32_t i = 0; i < batch; ++i) {
      ExpectSameBits({logits.begin() + i * kVocab, logits.begin() + (i + 1) * kVocab},
                     alone[first + i],
                     "batch " + std::to_string(batch) + ", slot " + std::to_string(first + i));
    }
  }
}

TEST_P(BitsTest, DecodeRowsAreTheSameBesideAPrefill) {
  const std::unique_ptr<TestModel> model = Make(*ops_, Options(*ops_));
  model->SetTokens(0, random_.Tokens(31, kVocab));
  model->SetTokens(1, random_.Tokens(200, kVocab));
  std::vector<TestRow> prompt;
  for (int32_t position = 0; position < 30; ++position) prompt.push_back({0, position});
  model->Forward(prompt, {});
  const std::vector<float> alone = model->Forward({{0, -1}}, {0});
  std::vector<TestRow> mixed = {{0, -1}};
  for (int32_t position = 0; position < 200; ++position) mixed.push_back({1, position});
  ExpectSameBits(model->Forward(mixed, {0}), alone, "beside 200 rows");
}

TEST_P(BitsTest, LogitsAreTheSameAfterARewind) {
  const std::unique_ptr<TestModel> model = Make(*ops_, Options(*ops_));
  const std::vector<int32_t> tokens = random_.Tokens(100, kVocab);
  const std::vector<float> want = AllLogits(*model, tokens, {100});
  std::vector<int32_t> other = tokens;
  for (int32_t i = 50; i < 100; ++i) other[i] = (tokens[i] + 1) % kVocab;
  AllLogits(*model, other, {100});
  ExpectSameBits(AllLogits(*model, tokens, {9}), want, "after other tokens");
}

TEST_P(BitsTest, ACopiedPageContinuesAsTheOriginal) {
  const std::unique_ptr<TestModel> model = Make(*ops_, Options(*ops_));
  const std::vector<int32_t> tokens = random_.Tokens(90, kVocab);
  const std::vector<float> want = AllLogits(*model, tokens, {90});
  // Slot 1 takes over slot 0's first 89 positions by copies of both pages.
  const std::vector<int32_t> table =
      model->data().Get(model->kv().page_table, 2 * model->kv().max_pages_per_slot);
  const int32_t* second = table.data() + model->kv().max_pages_per_slot;
  ops_->CopyPage(model->kv(), table[0], second[0], kPageTokens);
  ops_->CopyPage(model->kv(), table[1], second[1], 89 - kPageTokens);
  model->SetTokens(1, tokens);
  ExpectSameBits(model->Forward({{1, -1}}, {0}), {want.end() - kVocab, want.end()}, "copy");
}

INSTANTIATE_TEST_SUITE_P(Backends, BitsTest, testing::ValuesIn(BackendsAndReference()),
                         BackendName);

// ---- the tests above find violations
// --------------------------------------------------------------------------------

// Breaks the contract in one way: a result changes in its last bit by something that must not
// matter.
class PlantedOps final : public ForwardingOps {
 public:
  enum class Fault { kRowCount, kLengthTile, kRowIndex };

  PlantedOps(std::unique_ptr<Ops> ops, Fault fault)
      : ForwardingOps(std::move(ops)), fault_(fault) {}

  void Project(const ProjectArgs& args) override {
    ForwardingOps::Project(args);
    const int32_t width = args.weight->rows;
    for (int32_t row = 0; row < args.rows.num_rows; ++row) {
      const bool hit = fault_ == Fault::kRowCount     ? args.rows.num_rows > 4
                       : fault_ == Fault::kLengthTile ? args.rows.num_rows % 64 == 0
                                                      : row % 8 == 7;
      if (hit) args.residual[row * width] = std::nextafter(args.residual[row * width], 1e30f);
    }
  }

 private:
  const Fault fault_;
};

TEST(BitsTestItself, FindsAResultThatDependsOnTheShapeOfTheStep) {
  for (const PlantedOps::Fault fault :
       {PlantedOps::Fault::kRowCount, PlantedOps::Fault::kLengthTile,
        PlantedOps::Fault::kRowIndex}) {
    PlantedOps ops(MakeReferenceOps(ActDType::kF32), fault);
    const ModelOptions options = Options(ops);
    const std::vector<int32_t> tokens = RandomData(11).Tokens(80, kVocab);
    const std::vector<float> whole = AllLogits(**TestModel::Make(ops, options), tokens, {80});
    bool found = false;
    for (const std::vector<int32_t>& chunks :
         std::vector<std::vector<int32_t>>{{1}, {37}, {64}, {3, 61, 1, 17}}) {
      const std::vector<float> other = AllLogits(**TestModel::Make(ops, options), tokens, chunks);
      found = found || !SameBits(other, whole);
    }
    EXPECT_TRUE(found) << "fault " << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace tandem::kernels
