// What a row may read and write: its own slot's positions, its own line, nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/test_model.h"

namespace tandem::kernels {
namespace {

class IsolationTest : public testing::TestWithParam<Backend> {
 protected:
  std::unique_ptr<TestModel> Make(const ModelOptions& options, uint32_t page_seed = 1) {
    absl::StatusOr<std::unique_ptr<TestModel>> model = TestModel::Make(*ops_, options, page_seed);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  ModelOptions Options() const {
    ModelOptions options;
    options.num_layers = 2;
    options.kv = ops_->info().default_kv;
    return options;
  }
  static std::vector<TestRow> Chunk(int32_t slot, int32_t begin, int32_t end) {
    std::vector<TestRow> rows;
    for (int32_t position = begin; position < end; ++position) rows.push_back({slot, position});
    return rows;
  }
  static bool AllFinite(const std::vector<float>& values) {
    for (const float value : values) {
      if (!std::isfinite(value)) return false;
    }
    return true;
  }

  const std::unique_ptr<Ops> ops_ = GetParam().make();
  RandomData random_{3};
};

// TestModel fills every byte of the cache with NaN patterns before it is written.
TEST_P(IsolationTest, B109_NaNInTheUnusedTailOfAPageAndInFreePagesIsNotRead) {
  for (const int32_t length : {1, 30, 64, 65, 100}) {
    const std::unique_ptr<TestModel> model = Make(Options());
    model->SetTokens(1, random_.Tokens(length, 101));
    EXPECT_TRUE(AllFinite(model->Forward(Chunk(1, 0, length), {length - 1}))) << length;
  }
}

TEST_P(IsolationTest, B109_LogitsDoNotDependOnWhatUnusedCacheHolds) {
  const std::vector<int32_t> tokens = random_.Tokens(70, 101);
  const std::unique_ptr<TestModel> poisoned = Make(Options());
  poisoned->SetTokens(1, tokens);
  const std::vector<float> want = poisoned->Forward(Chunk(1, 0, 70), {69});
  for (const int fill : {0x00, 0x7F, 0x3C}) {
    const std::unique_ptr<TestModel> model = Make(Options());
    model->set_kv(std::vector<uint8_t>(model->kv().DataBytes(), static_cast<uint8_t>(fill)), {});
    model->SetTokens(1, tokens);
    ExpectSameBits(model->Forward(Chunk(1, 0, 70), {69}), want, "fill " + std::to_string(fill));
  }
}

TEST_P(IsolationTest, PagesThatAWindowHasDroppedAreNotRead) {
  ModelOptions options = Options();
  options.window = 40;
  const std::vector<int32_t> tokens = random_.Tokens(150, 101);
  const std::unique_ptr<TestModel> whole = Make(options);
  const std::unique_ptr<TestModel> dropped = Make(options);
  for (TestModel* model : {whole.get(), dropped.get()}) {
    model->SetTokens(2, tokens);
    model->Forward(Chunk(2, 0, 149), {});
  }
  dropped->DropPage(2, 0);  // position 149 sees 110 to 149
  ExpectSameBits(dropped->Forward({{2, 149}}, {0}), whole->Forward({{2, 149}}, {0}), "logits");
}

TEST_P(IsolationTest, IdleRowsWriteNothingIntoTheCache) {
  const std::unique_ptr<TestModel> model = Make(Options());
  model->SetTokens(0, random_.Tokens(5, 101));
  model->Forward(Chunk(0, 0, 5), {});
  const std::vector<uint8_t> before = model->kv_data();
  model->Forward({{-1, -1}, {-1, 3}, {2, -1}}, {});  // slot 2 holds no token to continue from
  EXPECT_EQ(std::memcmp(before.data(), model->kv_data().data(), before.size()), 0);
}

TEST_P(IsolationTest, RowsThatContinueFromAnUndecidedTokenAreIdle) {
  const std::unique_ptr<TestModel> model = Make(Options());
  model->SetTokens(0, {5, 6, kIdleToken});
  model->Forward(Chunk(0, 0, 2), {});
  const std::vector<uint8_t> before = model->kv_data();
  model->Forward({{0, -1}}, {});
  EXPECT_EQ(model->data().Get(model->rows().token, 1)[0], kIdleToken);
  EXPECT_EQ(std::memcmp(before.data(), model->kv_data().data(), before.size()), 0);
}

TEST_P(IsolationTest, ARowWritesItsOwnPositionOnly) {
  const std::unique_ptr<TestModel> model = Make(Options());
  const KvPool& kv = model->kv();
  model->SetTokens(1, random_.Tokens(80, 101));
  model->Forward(Chunk(1, 0, 79), {});
  const std::vector<uint8_t> before = model->kv_data();
  model->Forward({{1, -1}}, {});
  const std::vector<uint8_t> after = model->kv_data();
  int64_t changed = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    ++changed;
    const int64_t element = static_cast<int64_t>(i) / ElementBytes(kv.format);
    ASSERT_EQ(element / kv.head_dim % kPageTokens, 79 % kPageTokens) << "byte " << i;
  }
  const int64_t written = 2 * kv.num_layers * kv.num_kv_heads * kv.head_dim;
  EXPECT_GT(changed, written / 2);
  EXPECT_LE(changed, written * ElementBytes(kv.format));
}

TEST_P(IsolationTest, NaNInAnotherSlotStaysThere) {
  const std::vector<int32_t> tokens = random_.Tokens(20, 101);
  const std::unique_ptr<TestModel> model = Make(Options());
  model->SetTokens(0, tokens);
  model->SetTokens(1, tokens);
  model->Forward(Chunk(0, 0, 19), {});
  model->Forward(Chunk(1, 0, 19), {});
  const std::vector<float> alone = model->Forward({{0, 19}}, {0});

  model->SetRows({{0, 19}, {1, 19}}, {0, 1});
  model->Embed();
  std::vector<float> residual = model->residual();
  for (size_t i = residual.size() / 2; i < residual.size(); ++i) residual[i] = std::nanf("");
  model->set_residual(residual);
  for (int32_t layer = 0; layer < 2; ++layer) {
    model->Qkv(layer);
    model->Attention(layer);
    model->ProjectAttention(layer);
    model->GateUp(layer);
    model->ProjectFfn(layer);
  }
  model->Head();
  const std::vector<float> logits = model->logits();
  ExpectSameBits({logits.begin(), logits.begin() + 101}, alone, "the healthy row");
  EXPECT_TRUE(std::isnan(logits[101]));
}

INSTANTIATE_TEST_SUITE_P(Backends, IsolationTest, testing::ValuesIn(BackendsAndReference()),
                         BackendName);

}  // namespace
}  // namespace tandem::kernels
