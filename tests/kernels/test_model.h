// A small random model on a backend, seam by seam: what the operation, isolation and bits tests
// run.
//
// Two models of equal options and seed on two backends have equal weights and inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/ops.h"
#include "tests/kernels/device_data.h"

namespace tandem::kernels {

struct ModelOptions {
  int32_t hidden_size = 64;
  AttentionShape shape{4, 2, 64};
  int32_t ffn_size = 96;
  int32_t vocab_size = 101;
  int32_t num_layers = 1;
  int32_t context_length = 256;
  int32_t num_slots = 4;
  int32_t num_spare_pages = 3;                // pages that no slot holds
  std::vector<DType> dtypes = {DType::kF32};  // of the parts of each matrix, in turn
  KvFormat kv = KvFormat::kF32;
  bool has_bias = false;
  bool has_qk_norm = false;
  bool has_post_norm = false;
  NormOrder norm_order = NormOrder::kRoundThenScale;
  float norm_offset = 0.0f;
  RopePairs pairs = RopePairs::kHalves;
  int32_t rotary_dim = 0;  // 0: head_dim
  GateKind gate = GateKind::kSilu;
  float embed_scale = 1.0f;
  float soft_cap = 0.0f;
  int32_t window = 0;
  float logit_scale = 1.0f;
  float logit_cap = 0.0f;
};

struct TestRow {
  int32_t slot = 0;      // -1: padding
  int32_t position = 0;  // -1: continues
};

class TestModel final {
 public:
  static constexpr uint32_t kSeed = 1;

  // UNIMPLEMENTED where the backend lacks an option.
  static absl::StatusOr<std::unique_ptr<TestModel>> Make(Ops& ops, const ModelOptions& options,
                                                         uint32_t page_seed = 1);

  // The slot's tokens from position 0 on.
  void SetTokens(int32_t slot, const std::vector<int32_t>& tokens);
  // Marks a page table entry as not held.
  void DropPage(int32_t slot, int32_t entry);

  // Starts a step: rows, and which of them have logits; runs PrepareRows.
  void SetRows(const std::vector<TestRow>& rows, const std::vector<int32_t>& logits_rows = {});
  // The seams, in the order of a forward pass.
  void Embed();
  void Qkv(int32_t layer);
  void Attention(int32_t layer);
  void ProjectAttention(int32_t layer);
  void GateUp(int32_t layer);
  void ProjectFfn(int32_t layer);
  void Head();
  // All of them. Logits of the logits rows, [n, vocab_size].
  std::vector<float> Forward(const std::vector<TestRow>& rows,
                             const std::vector<int32_t>& logits_rows);

  // Results of the step's rows.
  std::vector<float> residual() { return data_.Get(residual_, rows_.num_rows * hidden()); }
  std::vector<float> q() { return data_.GetActivations(q_, rows_.num_rows * q_width()); }
  std::vector<float> attention() { return data_.GetActivations(attn_, rows_.num_rows * q_width()); }
  std::vector<float> gated() {
    return data_.GetActivations(gated_, rows_.num_rows * int64_t{options_.ffn_size});
  }
  std::vector<float> logits() {
    return data_.Get(logits_, num_logits_rows_ * int64_t{options_.vocab_size});
  }
  void set_residual(const std::vector<float>& values) { data_.Set(residual_, values); }
  void set_q(const std::vector<float>& values) { data_.SetActivations(q_, values); }
  void set_attention(const std::vector<float>& values) { data_.SetActivations(attn_, values); }
  void set_gated(const std::vector<float>& values) { data_.SetActivations(gated_, values); }

  // The whole cache, as stored.
  std::vector<uint8_t> kv_data() {
    return data_.Get(static_cast<uint8_t*>(kv_.data), kv_.DataBytes());
  }
  std::vector<float> kv_scales() { return data_.Get(kv_.scales, kv_.ScaleBytes() / sizeof(float)); }
  void set_kv(const std::vector<uint8_t>& data, const std::vector<float>& scales);
  // K (side 0) or V (side 1) of positions [begin, end) of a slot, [end - begin, num_kv_heads *
  // head_dim], fp32.
  std::vector<float> CachedVectors(int32_t slot, int32_t layer, int32_t side, int32_t begin,
                                   int32_t end);

  const ModelOptions& options() const { return options_; }
  const KvPool& kv() const { return kv_; }
  const SlotState& slots() const { return slots_; }
  const StepRows& rows() const { return rows_; }
  DeviceData& data() { return data_; }
  int64_t hidden() const { return options_.hidden_size; }
  int64_t q_width() const { return int64_t{options_.shape.num_heads} * options_.shape.head_dim; }

 private:
  struct LayerWeights {
    Weight qkv, o, gate_up, down;
    Norm attn_norm, ffn_norm, q_norm, k_norm, attn_post_norm, ffn_post_norm;
    const float* qkv_bias = nullptr;
    const float* o_bias = nullptr;
    const float* gate_up_bias = nullptr;
    const float* down_bias = nullptr;
  };

  TestModel(Ops& ops, const ModelOptions& options);
  absl::Status PrepareWeights();
  absl::StatusOr<Weight> MakeWeight(const std::vector<int32_t>& part_rows, int32_t cols);
  Norm MakeNorm(int32_t width);
  const float* MakeBias(int32_t rows);
  void PrepareRope();
  void PrepareCache(uint32_t page_seed);

  Ops& ops_;
  const ModelOptions options_;
  DeviceData data_;
  RandomData random_{kSeed};
  int32_t next_dtype_ = 0;

  Weight embed_, output_;
  Norm final_norm_;
  const float* output_bias_ = nullptr;
  std::vector<LayerWeights> layers_;
  Rope rope_;
  KvPool kv_;
  std::vector<int32_t> page_table_;
  int32_t* device_page_table_ = nullptr;
  SlotState slots_;

  StepRows rows_;
  int32_t num_logits_rows_ = 0;
  const int32_t* logits_rows_ = nullptr;
  float* residual_ = nullptr;
  void* q_ = nullptr;
  void* attn_ = nullptr;
  void* gated_ = nullptr;
  float* logits_ = nullptr;
};

}  // namespace tandem::kernels
