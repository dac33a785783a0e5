// Row kernels where the shared operation tests do not reach: the bytes of 8-bit caches, and
// candidate rows of the sizes and with the ties that only a selection over the whole row survives.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/reference/candidates.h"
#include "kernels/reference/dequantize.h"
#include "tests/kernels/device_data.h"

namespace tandem::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CudaRowsTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no CUDA device";
  }
  void TearDown() override {
    for (void* memory : memory_) cudaFree(memory);
  }

  template <typename T>
  T* Put(const std::vector<T>& values) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, values.size() * sizeof(T) + 1), cudaSuccess);
    memory_.push_back(memory);
    EXPECT_EQ(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
    return static_cast<T*>(memory);
  }
  template <typename T>
  std::vector<T> Get(const T* device, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cudaMemcpy(values.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

  RandomData random_{11};

 private:
  std::vector<void*> memory_;
};

// ---- the cache
// -----------------------------------------------------------------------------------

std::vector<float> RoundedToBf16(std::vector<float> values) {
  for (float& value : values) value = BFloat16ToFloat(FloatToBFloat16(value));
  return values;
}

TEST_F(CudaRowsTest, EightBitCachesHoldTheBytesOfTheReference) {
  constexpr int32_t kHeadDim = 80, kRows = 40, kPages = 2;
  // Rows of one query head, one K and one V head: q is not looked at.
  std::vector<float> values = random_.Normals(kRows * 3 * kHeadDim, 1.0f);
  const float scales[] = {1.0f, 1e-3f, 300.0f, 1e-38f, 1e-40f, 1e37f};
  for (int32_t row = 0; row < kRows; ++row) {
    for (int32_t i = 0; i < 3 * kHeadDim; ++i) {
      float& value = values[row * 3 * kHeadDim + i];
      value = row == 1 ? 0.0f : value * scales[row % 6];
      if (row == 2) value = i % 2 == 0 ? -0.0f : 0.0f;
      if (row % 3 == 0) value = std::round(value * 2.0f) / 2.0f;  // ties between steps
    }
  }
  values[3 * 3 * kHeadDim + kHeadDim + 7] = kInfinity;
  values[4 * 3 * kHeadDim + 2 * kHeadDim + 79] = std::nanf("");
  values = RoundedToBf16(std::move(values));
  std::vector<uint16_t> qkv;
  for (const float value : values) qkv.push_back(FloatToBFloat16(value));
  std::vector<int32_t> slots(kRows, 0), positions, tokens(kRows, 5);
  for (int32_t row = 0; row < kRows; ++row) positions.push_back(50 + row);  // over a page edge

  for (const KvFormat format : {KvFormat::kInt8, KvFormat::kFp8E4M3}) {
    SCOPED_TRACE(std::string(Name(format)));
    KvPool kv;
    kv.format = format;
    kv.num_layers = 1;
    kv.num_pages = kPages;
    kv.num_kv_heads = 1;
    kv.head_dim = kHeadDim;
    kv.max_pages_per_slot = 2;
    kv.page_table = Put(std::vector<int32_t>{1, 0});
    kv.data = Put(std::vector<uint8_t>(kv.DataBytes(), 0xAA));
    kv.scales = Put(std::vector<float>(kv.ScaleBytes() / sizeof(float), -1.0f));
    RopeArgs args;
    args.rows = {kRows, Put(slots), Put(positions), Put(tokens), Put(positions)};
    args.qkv = reinterpret_cast<const __nv_bfloat16*>(Put(qkv));
    args.shape = {1, 1, kHeadDim};
    args.kv = kv;
    args.q = reinterpret_cast<__nv_bfloat16*>(Put(std::vector<uint16_t>(kRows * kHeadDim)));
    LaunchRope(args, nullptr);  // without angles: k keeps its values

    const std::vector<uint8_t> data = Get(static_cast<uint8_t*>(kv.data), kv.DataBytes());
    const std::vector<float> got_scales = Get(kv.scales, kv.ScaleBytes() / sizeof(float));
    for (int32_t row = 0; row < kRows; ++row) {
      for (const int32_t side : {0, 1}) {
        SCOPED_TRACE("row " + std::to_string(row) + " side " + std::to_string(side));
        const int32_t page = positions[row] < kPageTokens ? 1 : 0;
        const int64_t element = kv.ElementOffset(0, page, side, 0, positions[row] % kPageTokens);
        std::vector<uint8_t> want(kHeadDim);
        float want_scale = 0.0f;
        EncodeKv(format, values.data() + (row * 3 + 1 + side) * kHeadDim, kHeadDim, want.data(),
                 &want_scale);
        const float got_scale = got_scales[element / kHeadDim];
        EXPECT_TRUE(got_scale == want_scale || (std::isnan(got_scale) && std::isnan(want_scale)))
            << got_scale << ", expected " << want_scale;
        EXPECT_EQ(std::vector<uint8_t>(data.begin() + element, data.begin() + element + kHeadDim),
                  want);
      }
    }
  }
}

// ---- candidates
// ----------------------------------------------------------------------------------

class CudaCandidatesTest : public CudaRowsTest {
 protected:
  static constexpr int32_t kContext = 64;

  // Rows of slots 0, 1, .. at the given positions, a line of logits for each.
  struct Step {
    std::vector<int32_t> slots, positions;
    std::vector<int32_t> tokens;  // of the rows; or empty: 1
    std::vector<float> logits;
    std::vector<DrawParams> params;                // of each slot
    std::vector<int32_t> report_ids, num_reports;  // 4 places for each slot; or empty
    bool advance = false;
  };
  struct Result {
    std::vector<RowSummary> summary;
    std::vector<TopEntry> top;
    std::vector<PerturbedEntry> perturbed;
    std::vector<RawEntry> raw_top, reported;
    std::vector<int32_t> tokens, num_tokens;
  };

  Result Run(const Step& step) {
    const int32_t n = static_cast<int32_t>(step.slots.size());
    const int32_t num_slots = static_cast<int32_t>(step.params.size());
    const int32_t vocab_size = static_cast<int32_t>(step.logits.size()) / n;
    std::vector<int32_t> logits_rows;
    for (int32_t i = 0; i < n; ++i) logits_rows.push_back(i);
    CandidatesArgs args;
    args.rows = {n, Put(step.slots), Put(step.positions),
                 Put(step.tokens.empty() ? std::vector<int32_t>(n, 1) : step.tokens),
                 Put(step.positions)};
    args.num_logits_rows = n;
    args.logits_rows = Put(logits_rows);
    args.logits = Put(step.logits);
    args.slots = {num_slots, kContext, vocab_size};
    args.slots.tokens = Put(std::vector<int32_t>(num_slots * kContext, 1));
    args.slots.num_tokens = Put(std::vector<int32_t>(num_slots, 1));
    args.slots.params = Put(step.params);
    if (!step.report_ids.empty()) {
      args.slots.max_report_ids = 4;
      args.slots.report_ids = Put(step.report_ids);
      args.slots.num_report_ids = Put(step.num_reports);
    }
    args.advance = step.advance;
    args.summary = Put(std::vector<RowSummary>(n));
    args.max_top = kMaxTop;
    args.max_perturbed = kMaxPerturbed;
    args.top = Put(std::vector<TopEntry>(n * kMaxTop));
    args.perturbed = Put(std::vector<PerturbedEntry>(n * kMaxPerturbed));
    args.raw_top = Put(std::vector<RawEntry>(n * kMaxRawTop));
    args.reported = Put(std::vector<RawEntry>(n * kMaxReported));
    // Scratch is not zeroed, and what stands behind it stays.
    const int64_t bytes = CandidatesScratchBytes(n, vocab_size);
    uint8_t* scratch = Put(std::vector<uint8_t>(bytes + 256, 0x5A));
    LaunchCandidates(args, scratch, nullptr);
    EXPECT_EQ(Get(scratch + bytes, 256), std::vector<uint8_t>(256, 0x5A));
    return {Get(args.summary, n),
            Get(args.top, n * kMaxTop),
            Get(args.perturbed, n * kMaxPerturbed),
            Get(args.raw_top, n * kMaxRawTop),
            Get(args.reported, n * kMaxReported),
            Get(args.slots.tokens, num_slots * kContext),
            Get(args.slots.num_tokens, num_slots)};
  }

  template <typename T>
  static void ExpectEntries(const T* got, const std::vector<T>& want, const char* list) {
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0)
          << list << " entry " << i << ": id " << got[i].id << ", expected " << want[i].id;
    }
  }

  // Every row, whose slot is its index, against the sorted row.
  void ExpectSortedRows(Step step) {
    const Result got = Run(step);
    const int32_t n = static_cast<int32_t>(step.slots.size());
    const size_t vocab_size = step.logits.size() / n;
    std::vector<int32_t> tokens(n * kContext, 1), num_tokens(n, 1);
    SlotState host = {n, kContext, static_cast<int32_t>(vocab_size)};
    host.tokens = tokens.data();
    host.num_tokens = num_tokens.data();
    host.params = step.params.data();
    host.max_report_ids = 4;
    host.report_ids = step.report_ids.empty() ? nullptr : step.report_ids.data();
    host.num_report_ids = step.num_reports.data();
    for (int32_t i = 0; i < n; ++i) {
      SCOPED_TRACE("row " + std::to_string(i));
      const RowCandidates want = ComputeCandidates(
          {step.logits.data() + i * vocab_size, vocab_size}, host, i, step.positions[i]);
      const RowSummary& summary = got.summary[i];
      EXPECT_EQ(summary.num_top, want.summary.num_top);
      EXPECT_EQ(summary.num_perturbed, want.summary.num_perturbed);
      EXPECT_EQ(summary.num_in_row, want.summary.num_in_row);
      EXPECT_EQ(std::memcmp(&summary.row_max, &want.summary.row_max, sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(&summary.next_perturbed, &want.summary.next_perturbed, sizeof(float)),
                0);
      EXPECT_EQ(summary.total_weight, want.summary.total_weight);
      EXPECT_EQ(summary.top_k_weight, want.summary.top_k_weight);
      EXPECT_EQ(summary.raw_max, want.summary.raw_max);
      EXPECT_EQ(summary.raw_total, want.summary.raw_total);
      EXPECT_EQ(summary.drawn, want.summary.drawn);
      ExpectEntries(got.top.data() + i * kMaxTop, want.top, "top");
      ExpectEntries(got.perturbed.data() + i * kMaxPerturbed, want.perturbed, "perturbed");
      ExpectEntries(got.raw_top.data() + i * kMaxRawTop, want.raw_top, "raw top");
      ExpectEntries(got.reported.data() + i * kMaxReported, want.reported, "reported");
    }
  }

  // Lists of all lengths and cuts of all depths, one slot each.
  std::vector<DrawParams> HardParams(int32_t vocab_size) {
    std::vector<DrawParams> all(6);
    const int32_t tops[] = {20, kMaxTop, 0, 1, 1000, 40};
    const int32_t top_ks[] = {0, 5000, vocab_size - 1, 1025, 40, vocab_size};
    for (size_t i = 0; i < all.size(); ++i) {
      DrawParams& params = all[i];
      params.seed = 1000 + i;
      params.greedy = i == 3;
      params.inverse_temperature = i == 1 ? 0.01f : 1.0f;
      params.num_top = tops[i];
      params.num_perturbed = i % 2 == 0 ? 8 : kMaxPerturbed;
      params.top_k = top_ks[i];
      params.top_p_fixed = kTopPOff / 10 * 9;
      params.want_raw = i == 1 || i == 5;
      params.num_raw_top = kMaxRawTop;
    }
    return all;
  }
  Step HardStep(int32_t vocab_size) {
    Step step;
    step.params = HardParams(vocab_size);
    for (size_t i = 0; i < step.params.size(); ++i) {
      step.slots.push_back(static_cast<int32_t>(i));
      step.positions.push_back(static_cast<int32_t>(i));
      for (const int32_t id : {0, vocab_size - 1, vocab_size / 2, vocab_size / 2}) {
        step.report_ids.push_back(id);
      }
      step.num_reports.push_back(4);
    }
    return step;
  }
};

TEST_F(CudaCandidatesTest, WholeVocabulariesEqualTheSortedRow) {
  for (const int32_t vocab_size : {32001, 128256, 262144}) {
    SCOPED_TRACE("vocabulary " + std::to_string(vocab_size));
    Step step = HardStep(vocab_size);
    step.logits = random_.Normals(step.slots.size() * vocab_size, 4.0f);
    ExpectSortedRows(std::move(step));
  }
}

TEST_F(CudaCandidatesTest, RowsOfEqualLogitsAreCutByTheirIds) {
  Step step = HardStep(70000);
  step.logits.assign(step.slots.size() * 70000, -2.5f);
  ExpectSortedRows(std::move(step));
}

TEST_F(CudaCandidatesTest, RowsOfAFewValuesAreCutInsideATie) {
  Step step = HardStep(70000);
  step.logits = random_.Normals(step.slots.size() * 70000, 0.7f);
  for (float& logit : step.logits) logit = std::round(logit);
  ExpectSortedRows(std::move(step));
}

TEST_F(CudaCandidatesTest, TheRowMaximumKeepsTheSignOfTheFirstZero) {
  Step step = HardStep(9000);
  step.logits.assign(step.slots.size() * 9000, -1.0f);
  for (size_t row = 0; row < step.slots.size(); ++row) {
    step.logits[row * 9000 + 4000] = row % 2 == 0 ? -0.0f : 0.0f;
    step.logits[row * 9000 + 8999] = row % 2 == 0 ? 0.0f : -0.0f;
  }
  ExpectSortedRows(std::move(step));
}

// Rows of one slot, whose draws are 10, 11, 12, ..; more of them than a warp has lanes.
TEST_F(CudaCandidatesTest, OfRowsOfOneSlotTheFirstWhoseDrawIsNotTheNextTokenIsAppended) {
  constexpr int32_t kRows = 40;
  for (const int32_t ends : {0, 1, 30, 31, 32, 38, 39}) {
    Step step;
    step.params.resize(2);
    step.logits.assign((kRows + 1) * 100, 0.0f);
    for (int32_t row = 0; row < kRows; ++row) {
      step.slots.push_back(1);
      step.positions.push_back(4 + row);
      // The draft of the decision of row - 1.
      step.tokens.push_back(row == ends + 1 ? 99 : 9 + row);
      step.logits[row * 100 + 10 + row] = 1.0f;
    }
    step.slots.push_back(0);
    step.positions.push_back(2);
    step.tokens.push_back(5);
    step.logits[kRows * 100 + 77] = 1.0f;
    step.advance = true;
    const Result got = Run(step);
    EXPECT_EQ(got.num_tokens, (std::vector<int32_t>{4, 4 + ends + 2}));
    std::vector<int32_t> tokens(2 * kContext, 1);
    tokens[3] = 77;
    tokens[kContext + 4 + ends + 1] = 10 + ends;
    EXPECT_EQ(got.tokens, tokens);
    for (int32_t row = 0; row < kRows; ++row) EXPECT_EQ(got.summary[row].drawn, 10 + row);
  }
}

TEST_F(CudaCandidatesTest, ADrawWithoutAPlaceIsNotAppended) {
  Step step;
  step.slots = {0, 0};
  step.positions = {kContext - 2, kContext - 1};
  step.tokens = {1, 8};
  step.params.resize(1);
  step.logits.assign(2 * 50, 0.0f);
  step.logits[8] = 1.0f;
  step.advance = true;
  const Result got = Run(step);
  EXPECT_EQ(got.num_tokens, std::vector<int32_t>{1});
  EXPECT_EQ(got.tokens, std::vector<int32_t>(kContext, 1));
}

}  // namespace
}  // namespace tandem::kernels::cuda
