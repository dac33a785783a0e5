// Each seam of a layer on each backend against the reference, from equal inputs: after every seam
// the backend goes on from the reference's result, so that a difference belongs to one seam.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/test_model.h"

namespace tandem::kernels {
namespace {

// How far two values of a cache format may be apart when what was stored differs by nearly nothing.
double StepOf(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return 0.0;
    case KvFormat::kBF16:
      return 1.0 / 128;
    case KvFormat::kInt8:
      return 1.0 / 100;
    case KvFormat::kFp8E4M3:
      return 1.0 / 12;
  }
  return 0.0;
}

class OpsLayerTest : public testing::TestWithParam<Backend> {
 protected:
  // Rows [begin, end) of a slot.
  static std::vector<TestRow> Chunk(int32_t slot, int32_t begin, int32_t end) {
    std::vector<TestRow> rows;
    for (int32_t position = begin; position < end; ++position) rows.push_back({slot, position});
    return rows;
  }

  // Two prompts, one of them in chunks that end off the page edges, padding between, then a decode
  // row of each.
  void CompareScenario(const ModelOptions& options, int32_t prompt, const std::string& what) {
    SCOPED_TRACE(what);
    if (!Make(options)) return;
    RandomData random(7);
    const std::vector<int32_t> long_tokens = random.Tokens(prompt + 1, options.vocab_size);
    const std::vector<int32_t> short_tokens = random.Tokens(2, options.vocab_size);
    for (TestModel* model : {backend_model_.get(), oracle_model_.get()}) {
      model->SetTokens(1, long_tokens);
      model->SetTokens(3, short_tokens);
    }
    const int32_t cut = (2 * prompt + 2) / 3;
    std::vector<TestRow> first = Chunk(1, 0, cut);
    first.push_back({-1, -1});
    first.push_back({3, 0});
    CompareStep(first, {cut - 1, cut + 1});
    if (cut < prompt) CompareStep(Chunk(1, cut, prompt), {});
    CompareStep({{3, -1}, {-1, -1}, {1, -1}}, {0, 2});
    ++compared_;
  }

  void CompareStep(const std::vector<TestRow>& rows, const std::vector<int32_t>& logits_rows) {
    if (HasFatalFailure()) return;
    TestModel& got = *backend_model_;
    TestModel& want = *oracle_model_;
    got.SetRows(rows, logits_rows);
    want.SetRows(rows, logits_rows);
    got.Embed();
    want.Embed();
    Close(Live(rows, got.residual()), Live(rows, want.residual()), "embed");
    got.set_residual(want.residual());
    for (int32_t layer = 0; layer < want.options().num_layers; ++layer) {
      got.Qkv(layer);
      want.Qkv(layer);
      Close(Live(rows, got.q()), Live(rows, want.q()), "q");
      CompareCache(rows, layer);
      got.set_q(want.q());
      got.set_kv(want.kv_data(), want.kv_scales());

      got.Attention(layer);
      want.Attention(layer);
      Close(Live(rows, got.attention()), Live(rows, want.attention()), "attention");
      got.set_attention(want.attention());

      got.ProjectAttention(layer);
      want.ProjectAttention(layer);
      Close(Live(rows, got.residual()), Live(rows, want.residual()), "o");
      got.set_residual(want.residual());

      got.GateUp(layer);
      want.GateUp(layer);
      Close(Live(rows, got.gated()), Live(rows, want.gated()), "gate and up");
      got.set_gated(want.gated());

      got.ProjectFfn(layer);
      want.ProjectFfn(layer);
      Close(Live(rows, got.residual()), Live(rows, want.residual()), "down");
      got.set_residual(want.residual());
    }
    got.Head();
    want.Head();
    Close(got.logits(), want.logits(), "logits");
  }

  // False, with the reason recorded, where the backend refuses the options.
  // A backend without an fp32 cache is compared with its own, where the format is not the subject.
  bool Make(ModelOptions options) {
    const bool has_format =
        ops_->SupportsAttention(options.shape, options.kv, options.soft_cap, options.window).ok();
    if (options.kv == KvFormat::kF32 && !has_format) options.kv = ops_->info().default_kv;
    backend_model_.reset();
    oracle_model_.reset();
    absl::StatusOr<std::unique_ptr<TestModel>> made = TestModel::Make(*ops_, options);
    if (!made.ok()) {
      EXPECT_EQ(made.status().code(), absl::StatusCode::kUnimplemented) << made.status();
      EXPECT_FALSE(made.status().message().empty());
      refusal_ = made.status().ToString();
      return false;
    }
    backend_model_ = *std::move(made);
    oracle_model_ = *TestModel::Make(*oracle_, options);
    return true;
  }

  void SkipUnlessCompared() {
    if (compared_ == 0) GTEST_SKIP() << GetParam().name << " refuses: " << refusal_;
  }

  const std::unique_ptr<Ops> ops_ = GetParam().make();
  const std::unique_ptr<Ops> oracle_ = MakeReferenceOps(GetParam().oracle);
  std::unique_ptr<TestModel> backend_model_;
  std::unique_ptr<TestModel> oracle_model_;
  int compared_ = 0;
  std::string refusal_;

 private:
  void Close(const std::vector<float>& got, const std::vector<float>& want,
             const std::string& what) {
    ExpectClose(got, want, GetParam().tolerance, what);
  }

  // The lines of rows that are not padding.
  static std::vector<float> Live(const std::vector<TestRow>& rows,
                                 const std::vector<float>& values) {
    const size_t width = values.size() / rows.size();
    std::vector<float> live;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].slot < 0) continue;
      live.insert(live.end(), values.begin() + i * width, values.begin() + (i + 1) * width);
    }
    return live;
  }

  void CompareCache(const std::vector<TestRow>& rows, int32_t layer) {
    TestModel& got = *backend_model_;
    TestModel& want = *oracle_model_;
    const std::vector<int32_t> positions = want.data().Get(want.rows().row_position, rows.size());
    const double tolerance = GetParam().tolerance + StepOf(want.options().kv);
    for (const int32_t side : {0, 1}) {
      for (const int32_t slot : {1, 3}) {
        int32_t begin = want.options().context_length, end = 0;
        for (size_t i = 0; i < rows.size(); ++i) {
          if (rows[i].slot != slot) continue;
          begin = std::min(begin, positions[i]);
          end = std::max(end, positions[i] + 1);
        }
        if (end == 0) continue;
        ExpectClose(got.CachedVectors(slot, layer, side, begin, end),
                    want.CachedVectors(slot, layer, side, begin, end), tolerance,
                    side == 0 ? "cached k" : "cached v");
      }
    }
  }
};

TEST_P(OpsLayerTest, EveryWeightType) {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    ModelOptions options;
    options.dtypes = {dtype};
    CompareScenario(options, 9, std::string(Info(dtype).name));
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, PartsOfOneWeightInDifferentTypes) {
  ModelOptions options;
  options.dtypes = {DType::kQ4_0, DType::kF32, DType::kQ8_0, DType::kQ4_1, DType::kBF16};
  options.has_bias = true;
  CompareScenario(options, 9, "mixed");
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, LengthsAtThePageEdges) {
  for (const int32_t prompt : {1, 2, 63, 64, 65, 127, 128, 129}) {
    CompareScenario(ModelOptions(), prompt, "prompt " + std::to_string(prompt));
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, HeadDimensions) {
  for (const int32_t head_dim : {64, 80, 96, 128, 256}) {
    ModelOptions options;
    options.shape = {6, 2, head_dim};
    CompareScenario(options, 70, "head_dim " + std::to_string(head_dim));
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, GroupsOfQueryHeads) {
  for (const int32_t group : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 33, 64}) {
    ModelOptions options;
    options.hidden_size = 32;
    options.shape = {2 * group, 2, 64};
    CompareScenario(options, 66, "group " + std::to_string(group));
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, OddSizes) {
  for (const int32_t odd : {1, 3, 17, 33, 101}) {
    ModelOptions options;
    options.hidden_size = odd;
    options.ffn_size = odd + 2;
    options.vocab_size = odd + 1;
    options.shape = {3, 3, 64};
    CompareScenario(options, 5, "hidden size " + std::to_string(odd));
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, WideRows) {
  ModelOptions options;
  options.hidden_size = 576;
  options.shape = {9, 3, 64};
  options.ffn_size = 1536;
  options.vocab_size = 1000;
  options.dtypes = {DType::kQ4_1, DType::kQ8_0};
  CompareScenario(options, 8, "135M shape");
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, B085_WindowsOverPromptsShorterAndLonger) {
  for (const int32_t window : {1, 5, 48, 64, 65}) {
    for (const int32_t prompt : {window - 1, window, window + 1, 3 * window}) {
      if (prompt < 1) continue;
      ModelOptions options;
      options.hidden_size = 32;
      options.shape = {3, 1, 64};
      options.window = window;
      CompareScenario(options, prompt,
                      "window " + std::to_string(window) + ", prompt " + std::to_string(prompt));
    }
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, SoftCaps) {
  for (const float cap : {0.5f, 50.0f}) {
    ModelOptions options;
    options.soft_cap = cap;
    options.logit_cap = cap / 2;
    options.logit_scale = 0.25f;
    CompareScenario(options, 66, "cap " + std::to_string(cap));
    options.window = 40;
    CompareScenario(options, 66, "cap and window " + std::to_string(cap));
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, CacheFormats) {
  for (const KvFormat format :
       {KvFormat::kF32, KvFormat::kBF16, KvFormat::kFp8E4M3, KvFormat::kInt8}) {
    ModelOptions options;
    options.kv = format;
    options.num_layers = 2;
    CompareScenario(options, 70, std::string(Name(format)));
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, NormsBiasesAndScales) {
  for (const NormOrder order : {NormOrder::kScaleThenRound, NormOrder::kRoundThenScale}) {
    for (const bool with_extras : {false, true}) {
      ModelOptions options;
      options.norm_order = order;
      options.norm_offset = with_extras ? 1.0f : 0.0f;
      options.has_bias = with_extras;
      options.has_qk_norm = with_extras;
      options.has_post_norm = with_extras;
      options.embed_scale = with_extras ? 8.0f : 1.0f;
      CompareScenario(options, 7, with_extras ? "all" : "none");
    }
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, EachOfBiasQkNormAndPostNormAlone) {
  for (int which = 0; which < 3; ++which) {
    ModelOptions options;
    options.has_bias = which == 0;
    options.has_qk_norm = which == 1;
    options.has_post_norm = which == 2;
    CompareScenario(options, 7, "option " + std::to_string(which));
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, RopePairsAndPartialRotation) {
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalves}) {
    for (const int32_t rotary_dim : {0, 2, 16, 32, 62}) {
      ModelOptions options;
      options.pairs = pairs;
      options.rotary_dim = rotary_dim;
      CompareScenario(options, 20, "rotary_dim " + std::to_string(rotary_dim));
    }
  }
  SkipUnlessCompared();
}

TEST_P(OpsLayerTest, GateKinds) {
  for (const GateKind gate : {GateKind::kSilu, GateKind::kGeluTanh, GateKind::kGeluErf}) {
    ModelOptions options;
    options.gate = gate;
    CompareScenario(options, 7, "gate " + std::to_string(static_cast<int>(gate)));
  }
  SkipUnlessCompared();
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsLayerTest, testing::ValuesIn(Backends()), BackendName);

}  // namespace
}  // namespace tandem::kernels
