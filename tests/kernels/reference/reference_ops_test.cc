// The reference against computations small enough to do by hand.
#include "kernels/reference/reference_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/reference/dequantize.h"
#include "kernels/reference/layer_math.h"
#include "tests/kernels/device_data.h"
#include "tests/kernels/test_model.h"

namespace tandem::kernels {
namespace {

class ReferenceTest : public testing::Test {
 protected:
  // Rows at positions 0, 1, .. of slot 0.
  StepRows Rows(int32_t n) {
    std::vector<int32_t> slot(n), position(n), token(n);
    for (int32_t i = 0; i < n; ++i) position[i] = i;
    return {n, data_.Put(slot), data_.Put(position), data_.Put(token), data_.Put(position)};
  }
  // One page, one layer, fp32.
  KvPool Pool(int32_t num_kv_heads, int32_t head_dim) {
    KvPool kv;
    kv.num_layers = 1;
    kv.num_pages = 1;
    kv.num_kv_heads = num_kv_heads;
    kv.head_dim = head_dim;
    kv.max_pages_per_slot = 1;
    kv.page_table = data_.Zeroes<int32_t>(1);
    kv.data = data_.Zeroes<uint8_t>(kv.DataBytes());
    return kv;
  }
  Norm UnitNorm(int32_t width) {
    return {data_.Put(std::vector<float>(width, 1.0f)), width, 1e-5f};
  }
  Weight Matrix(int32_t rows, int32_t cols, const std::vector<float>& values) {
    const HostMatrix matrix{values.data(), DType::kF32, rows, cols};
    return *ops_->PrepareWeight({&matrix, 1}, "test");
  }
  // Angles of 90 degrees at position 1, 0 at position 0: (a, b) becomes (-b, a).
  Rope QuarterTurns(int32_t rotary_dim, RopePairs pairs) {
    const int32_t half = rotary_dim / 2;
    std::vector<float> cos(2 * half, 1.0f), sin(2 * half, 0.0f);
    for (int32_t i = 0; i < half; ++i) {
      cos[half + i] = 0.0f;
      sin[half + i] = 1.0f;
    }
    return {data_.Put(cos), data_.Put(sin), 2, rotary_dim, pairs};
  }

  const std::unique_ptr<Ops> ops_ = MakeReferenceOps(ActDType::kF32);
  DeviceData data_{*ops_};
};

TEST_F(ReferenceTest, EmbedTakesTheTokensRowTimesTheScale) {
  const Weight table = Matrix(3, 2, {1, 2, 3, 4, 5, 6});
  StepRows rows = Rows(2);
  data_.Set(rows.token, {2, kIdleToken});
  float* residual = data_.Put(std::vector<float>{9, 9, 9, 9});
  ops_->Embed({rows, &table, 0.5f, residual});
  EXPECT_EQ(data_.Get(residual, 4), (std::vector<float>{2.5f, 3.0f, 9, 9}));
}

TEST_F(ReferenceTest, B105_TheNormUsesTheEpsilonItIsGiven) {
  const std::vector<float> x = {3e-3f, -4e-3f};
  for (const float epsilon : {1e-6f, 1e-5f, 1e-2f}) {
    Norm norm = UnitNorm(2);
    norm.epsilon = epsilon;
    std::vector<float> out(2);
    ApplyNorm(norm, ActDType::kF32, x.data(), out.data());
    const double root = std::sqrt(12.5e-6 + epsilon);
    EXPECT_FLOAT_EQ(out[0], static_cast<float>(3e-3 / root)) << epsilon;
    EXPECT_FLOAT_EQ(out[1], static_cast<float>(-4e-3 / root)) << epsilon;
  }
}

TEST_F(ReferenceTest, B107_TheOrderOfRoundingAndScalingIsTheFamilys) {
  const std::vector<float> x = {1.0f, 1.7f};
  Norm norm = UnitNorm(2);
  norm.weight = data_.Put(std::vector<float>{1.01f, 1.013f});
  const double inverse = 1.0 / std::sqrt((1.0 + 1.7f * 1.7f) / 2 + 1e-5f);
  const auto round = [](float value) { return BFloat16ToFloat(FloatToBFloat16(value)); };
  std::vector<float> out(2);
  norm.order = NormOrder::kRoundThenScale;
  ApplyNorm(norm, ActDType::kBF16, x.data(), out.data());
  const float normed = static_cast<float>(1.7f * inverse);
  EXPECT_EQ(out[1], round(round(normed) * 1.013f));
  norm.order = NormOrder::kScaleThenRound;
  ApplyNorm(norm, ActDType::kBF16, x.data(), out.data());
  EXPECT_EQ(out[1], round(normed * 1.013f));
}

TEST_F(ReferenceTest, NormOffsetsAreAddedToTheWeight) {
  Norm norm = UnitNorm(2);
  norm.offset = 1.0f;
  std::vector<float> with(2), without(2);
  const std::vector<float> x = {3, 4};
  ApplyNorm(norm, ActDType::kF32, x.data(), with.data());
  norm.offset = 0.0f;
  ApplyNorm(norm, ActDType::kF32, x.data(), without.data());
  EXPECT_FLOAT_EQ(with[0], 2 * without[0]);
}

TEST_F(ReferenceTest, B103_RopeTurnsThePairsOfTheAppliedQAndK) {
  // Identity products: normed hidden state h becomes q = k = v = h, one head of 8.
  std::vector<float> identities(24 * 8);
  for (int32_t i = 0; i < 24; ++i) identities[i * 8 + i % 8] = 1.0f;
  const Weight weight = Matrix(24, 8, identities);
  const std::vector<float> line = {1, 2, 3, 4, -1, -2, -3, -4};
  const double root = std::sqrt(60.0 / 8 + 1e-5);
  struct Case {
    RopePairs pairs;
    int32_t rotary_dim;
    std::vector<float> turned;
  };
  for (const Case& expected : {Case{RopePairs::kInterleaved, 8, {-2, 1, -4, 3, 2, -1, 4, -3}},
                               Case{RopePairs::kHalves, 8, {1, 2, 3, 4, 1, 2, 3, 4}},
                               Case{RopePairs::kInterleaved, 4, {-2, 1, -4, 3, -1, -2, -3, -4}},
                               Case{RopePairs::kHalves, 4, {-3, -4, 1, 2, -1, -2, -3, -4}}}) {
    std::vector<float> hidden = line;
    hidden.insert(hidden.end(), line.begin(), line.end());
    QkvArgs args;
    args.rows = Rows(2);
    args.residual = data_.Put(hidden);
    args.norm = UnitNorm(8);
    args.qkv = &weight;
    args.rope = QuarterTurns(expected.rotary_dim, expected.pairs);
    args.shape = {1, 1, 8};
    args.kv = Pool(1, 8);
    args.q = data_.Zeroes<float>(16);
    ops_->Qkv(args);
    const std::vector<float> q = data_.Get(static_cast<float*>(args.q), 16);
    const std::vector<float> kv = data_.Get(static_cast<float*>(args.kv.data), 2 * kPageTokens * 8);
    for (int32_t i = 0; i < 8; ++i) {
      EXPECT_FLOAT_EQ(q[i], static_cast<float>(line[i] / root)) << "position 0, " << i;
      EXPECT_FLOAT_EQ(q[8 + i], static_cast<float>(expected.turned[i] / root)) << i;
      EXPECT_FLOAT_EQ(kv[8 + i], static_cast<float>(expected.turned[i] / root)) << "k " << i;
      EXPECT_FLOAT_EQ(kv[kPageTokens * 8 + 8 + i], static_cast<float>(line[i] / root)) << "v " << i;
    }
  }
}

TEST_F(ReferenceTest, AttentionIsTheSoftmaxAverageOfV) {
  KvPool kv = Pool(1, 8);
  std::vector<float> cache(2 * kPageTokens * 8, std::nanf(""));
  // Scores with q = (1, 0, ..): 0, log 2, log 5. V = position in every dimension.
  const float scores[] = {0.0f, std::log(2.0f), std::log(5.0f)};
  for (int32_t position = 0; position < 3; ++position) {
    for (int32_t d = 0; d < 8; ++d) {
      cache[position * 8 + d] = d == 0 ? scores[position] : 0.0f;
      cache[(kPageTokens + position) * 8 + d] = static_cast<float>(position);
    }
  }
  kv.data = data_.Put(cache);
  std::vector<float> q(3 * 8);
  for (int32_t row = 0; row < 3; ++row) q[row * 8] = 1.0f;
  AttentionArgs args;
  args.rows = Rows(3);
  args.q = data_.Put(q);
  args.shape = {1, 1, 8};
  args.kv = kv;
  args.scale = 1.0f;
  args.out = data_.Zeroes<float>(3 * 8);
  ops_->Attention(args);
  std::vector<float> out = data_.Get(static_cast<float*>(args.out), 24);
  EXPECT_FLOAT_EQ(out[0], 0.0f);
  EXPECT_FLOAT_EQ(out[8], 2.0f / 3);
  EXPECT_FLOAT_EQ(out[16], 12.0f / 8);
  EXPECT_FLOAT_EQ(out[23], 12.0f / 8);

  args.window = 2;
  ops_->Attention(args);
  out = data_.Get(static_cast<float*>(args.out), 24);
  EXPECT_FLOAT_EQ(out[8], 2.0f / 3);
  EXPECT_FLOAT_EQ(out[16], 12.0f / 7);

  args.window = 0;
  args.scale = 2.0f;
  args.soft_cap = 1.0f;
  ops_->Attention(args);
  out = data_.Get(static_cast<float*>(args.out), 24);
  const double p1 = std::exp(std::tanh(2 * std::log(2.0)));
  EXPECT_FLOAT_EQ(out[8], static_cast<float>(p1 / (1 + p1)));
}

TEST_F(ReferenceTest, QueryHeadsOfAGroupShareTheirKvHead) {
  KvPool kv = Pool(2, 8);
  std::vector<float> cache(2 * 2 * kPageTokens * 8);
  for (int32_t head = 0; head < 2; ++head) {
    for (int32_t d = 0; d < 8; ++d) {
      cache[kv.ElementOffset(0, 0, 1, head, 0) + d] = 10.0f * static_cast<float>(head + 1);
    }
  }
  kv.data = data_.Put(cache);
  AttentionArgs args;
  args.rows = Rows(1);
  args.q = data_.Zeroes<float>(6 * 8);
  args.shape = {6, 2, 8};
  args.kv = kv;
  args.scale = 1.0f;
  args.out = data_.Zeroes<float>(6 * 8);
  ops_->Attention(args);
  const std::vector<float> out = data_.Get(static_cast<float*>(args.out), 48);
  for (int32_t head = 0; head < 6; ++head) EXPECT_EQ(out[head * 8], head < 3 ? 10.0f : 20.0f);
}

TEST_F(ReferenceTest, AbortsWhereARowReadsAPageThatItsSlotDoesNotHold) {
  AttentionArgs args;
  args.rows = Rows(1);
  args.q = data_.Zeroes<float>(8);
  args.shape = {1, 1, 8};
  args.kv = Pool(1, 8);
  args.kv.page_table = data_.Put(std::vector<int32_t>{-1});
  args.scale = 1.0f;
  args.out = data_.Zeroes<float>(8);
  EXPECT_DEATH(ops_->Attention(args), "slot 0 position 0: page -1 of 1");
}

TEST_F(ReferenceTest, AbortsOnATokenOutsideTheVocabulary) {
  const Weight table = Matrix(3, 2, {1, 2, 3, 4, 5, 6});
  StepRows rows = Rows(1);
  data_.Set(rows.token, {3});
  float* residual = data_.Zeroes<float>(2);
  EXPECT_DEATH(ops_->Embed({rows, &table, 1.0f, residual}), "token 3 of 3");
}

TEST_F(ReferenceTest, ProjectAddsToTheResidual) {
  const Weight weight = Matrix(2, 3, {1, 2, 3, 4, 5, 6});
  float* residual = data_.Put(std::vector<float>{100, 200});
  const float* x = data_.Put(std::vector<float>{1, 10, 100});
  ops_->Project(
      {Rows(1), x, &weight, data_.Put(std::vector<float>{0.5f, -0.5f}), nullptr, residual});
  EXPECT_EQ(data_.Get(residual, 2), (std::vector<float>{421.5f, 853.5f}));
}

TEST_F(ReferenceTest, APostNormComesBeforeTheResidualIsAdded) {
  const Weight weight = Matrix(2, 2, {3, 0, 0, 4});
  float* residual = data_.Put(std::vector<float>{100, 200});
  const Norm norm = UnitNorm(2);
  ops_->Project({Rows(1), data_.Put(std::vector<float>{1, 1}), &weight, nullptr, &norm, residual});
  const double root = std::sqrt(12.5 + 1e-5);
  const std::vector<float> out = data_.Get(residual, 2);
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(100 + 3 / root));
  EXPECT_FLOAT_EQ(out[1], static_cast<float>(200 + 4 / root));
}

TEST_F(ReferenceTest, GatesHaveTheirKnownValues) {
  EXPECT_FLOAT_EQ(Gated(GateKind::kSilu, 1.0f, 2.0f), 2 * 0.73105857863f);
  EXPECT_FLOAT_EQ(Gated(GateKind::kGeluErf, 1.0f, 1.0f), 0.84134474607f);
  EXPECT_FLOAT_EQ(Gated(GateKind::kGeluTanh, 1.0f, 1.0f), 0.84119199f);
  EXPECT_EQ(Gated(GateKind::kSilu, 0.0f, 5.0f), 0.0f);
  EXPECT_EQ(Gated(GateKind::kSilu, -1000.0f, 5.0f), 0.0f);
}

TEST_F(ReferenceTest, HeadScalesThenCapsTheLogits) {
  const Weight output = Matrix(2, 2, {1, 0, 0, 1});
  HeadArgs args;
  args.rows = Rows(2);
  args.residual = data_.Put(std::vector<float>{9, 9, 3, 4});
  args.num_logits_rows = 1;
  args.logits_rows = data_.Put(std::vector<int32_t>{1});
  args.norm = UnitNorm(2);
  args.output = &output;
  args.bias = data_.Put(std::vector<float>{1, 0});
  args.logit_scale = 3.0f;
  args.soft_cap = 2.0f;
  args.logits = data_.Zeroes<float>(2);
  ops_->Head(args);
  const double root = std::sqrt(12.5 + 1e-5);
  const std::vector<float> logits = data_.Get(args.logits, 2);
  EXPECT_FLOAT_EQ(logits[0], static_cast<float>(2 * std::tanh(3 * (3 / root + 1) / 2)));
  EXPECT_FLOAT_EQ(logits[1], static_cast<float>(2 * std::tanh(3 * (4 / root) / 2)));
}

TEST_F(ReferenceTest, Bf16ActivationsAreRoundedValues) {
  const std::unique_ptr<Ops> bf16 = MakeReferenceOps(ActDType::kBF16);
  ModelOptions options;
  const std::unique_ptr<TestModel> model = *TestModel::Make(*bf16, options);
  model->SetTokens(0, {1, 2, 3});
  model->Forward({{0, 0}, {0, 1}, {0, 2}}, {2});
  EXPECT_EQ(bf16->info().act_bytes, 2);
  for (const float value : model->gated()) {
    EXPECT_EQ(value, BFloat16ToFloat(FloatToBFloat16(value)));
  }
}

class RecordingTap final : public Tap {
 public:
  void OnTensor(std::string_view name, int32_t rows, int32_t cols, const float* values) override {
    names.push_back(std::string(name));
    shapes[std::string(name)] = {rows, cols};
    tensors[std::string(name)].assign(values, values + int64_t{rows} * cols);
  }
  std::vector<std::string> names;
  std::map<std::string, std::pair<int32_t, int32_t>> shapes;
  std::map<std::string, std::vector<float>> tensors;
};

TEST_F(ReferenceTest, ATapSeesEverySubResultInOrder) {
  RecordingTap tap;
  ops_->SetTap(&tap);
  ModelOptions options;
  options.has_qk_norm = options.has_post_norm = true;
  const std::unique_ptr<TestModel> model = *TestModel::Make(*ops_, options);
  model->SetTokens(0, {1, 2, 3});
  model->Forward({{0, 0}, {-1, -1}, {0, 1}, {0, 2}}, {3});
  const std::vector<std::string> expected = {
      "embed",        "attn_norm", "q",          "k",     "v",       "q_norm",
      "k_norm",       "q_rope",    "k_rope",     "attn",  "project", "project_norm",
      "residual",     "ffn_norm",  "gate",       "up",    "gated",   "project",
      "project_norm", "residual",  "final_norm", "logits"};
  EXPECT_EQ(tap.names, expected);
  EXPECT_EQ(tap.shapes["q"], std::make_pair(4, 256));
  EXPECT_EQ(tap.shapes["k_rope"], std::make_pair(4, 128));
  EXPECT_EQ(tap.shapes["gated"], std::make_pair(4, 96));
  EXPECT_EQ(tap.shapes["logits"], std::make_pair(1, 101));
  ExpectSameBits(tap.tensors["logits"], model->logits(), "logits");
  ExpectSameBits(tap.tensors["residual"], model->residual(), "residual");
  ops_->SetTap(nullptr);
  tap.names.clear();
  model->Forward({{0, 0}}, {0});
  EXPECT_TRUE(tap.names.empty());
}

}  // namespace
}  // namespace tandem::kernels
