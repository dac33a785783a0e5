#include "tests/kernels/test_model.h"

#include <cmath>
#include <utility>

#include "kernels/reference/dequantize.h"

namespace tandem::kernels {

TestModel::TestModel(Ops& ops, const ModelOptions& options)
    : ops_(ops), options_(options), data_(ops) {}

absl::StatusOr<std::unique_ptr<TestModel>> TestModel::Make(Ops& ops, const ModelOptions& options,
                                                           uint32_t page_seed) {
  absl::Status supported =
      ops.SupportsAttention(options.shape, options.kv, options.soft_cap, options.window);
  if (!supported.ok()) return supported;
  std::unique_ptr<TestModel> model(new TestModel(ops, options));
  supported = model->PrepareWeights();
  if (!supported.ok()) return supported;
  model->PrepareRope();
  model->PrepareCache(page_seed);
  return model;
}

absl::StatusOr<Weight> TestModel::MakeWeight(const std::vector<int32_t>& part_rows, int32_t cols) {
  std::vector<std::unique_ptr<StoredMatrix>> parts;
  std::vector<HostMatrix> views;
  for (const int32_t rows : part_rows) {
    const DType dtype = options_.dtypes[next_dtype_++ % options_.dtypes.size()];
    const float deviation = 1.0f / std::sqrt(static_cast<float>(cols));
    parts.push_back(RandomMatrix(dtype, rows, cols, deviation, random_));
    views.push_back(parts.back()->view);
  }
  return ops_.PrepareWeight(views, "test weight");
}

Norm TestModel::MakeNorm(int32_t width) {
  std::vector<float> weight = random_.Normals(width, 0.3f);
  for (float& value : weight) value += 1.0f - options_.norm_offset;
  return {data_.Put(weight), width, 1e-5f, options_.norm_offset, options_.norm_order};
}

const float* TestModel::MakeBias(int32_t rows) {
  return options_.has_bias ? data_.Put(random_.Normals(rows, 0.5f)) : nullptr;
}

absl::Status TestModel::PrepareWeights() {
  const int32_t hidden = options_.hidden_size;
  const int32_t head_dim = options_.shape.head_dim;
  const int32_t q_width = options_.shape.num_heads * head_dim;
  const int32_t kv_width = options_.shape.num_kv_heads * head_dim;
  const auto make = [&](const std::vector<int32_t>& part_rows, int32_t cols, Weight& weight) {
    absl::StatusOr<Weight> made = MakeWeight(part_rows, cols);
    if (made.ok()) weight = *std::move(made);
    return made.status();
  };
  absl::Status status;
  if (!(status = make({options_.vocab_size}, hidden, embed_)).ok()) return status;
  if (!(status = make({options_.vocab_size}, hidden, output_)).ok()) return status;
  final_norm_ = MakeNorm(hidden);
  output_bias_ = MakeBias(options_.vocab_size);
  layers_.resize(options_.num_layers);
  for (LayerWeights& layer : layers_) {
    if (!(status = make({q_width, kv_width, kv_width}, hidden, layer.qkv)).ok()) return status;
    if (!(status = make({hidden}, q_width, layer.o)).ok()) return status;
    if (!(status = make({options_.ffn_size, options_.ffn_size}, hidden, layer.gate_up)).ok()) {
      return status;
    }
    if (!(status = make({hidden}, options_.ffn_size, layer.down)).ok()) return status;
    layer.attn_norm = MakeNorm(hidden);
    layer.ffn_norm = MakeNorm(hidden);
    layer.q_norm = MakeNorm(head_dim);
    layer.k_norm = MakeNorm(head_dim);
    layer.attn_post_norm = MakeNorm(hidden);
    layer.ffn_post_norm = MakeNorm(hidden);
    layer.qkv_bias = MakeBias(q_width + 2 * kv_width);
    layer.o_bias = MakeBias(hidden);
    layer.gate_up_bias = MakeBias(2 * options_.ffn_size);
    layer.down_bias = MakeBias(hidden);
  }
  return absl::OkStatus();
}

void TestModel::PrepareRope() {
  const int32_t rotary_dim =
      options_.rotary_dim > 0 ? options_.rotary_dim : options_.shape.head_dim;
  std::vector<float> cos, sin;
  for (int32_t position = 0; position < options_.context_length; ++position) {
    for (int32_t i = 0; i < rotary_dim / 2; ++i) {
      const double angle = position * std::pow(10000.0, -2.0 * i / rotary_dim);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  rope_ = {data_.Put(cos), data_.Put(sin), options_.context_length, rotary_dim, options_.pairs};
}

// Pages are dealt out in random order, and every byte of the cache is poisoned: read as any format,
// it is NaN.
void TestModel::PrepareCache(uint32_t page_seed) {
  const int32_t pages_per_slot = (options_.context_length + kPageTokens - 1) / kPageTokens;
  kv_.format = options_.kv;
  kv_.num_layers = options_.num_layers;
  kv_.num_pages = options_.num_slots * pages_per_slot + options_.num_spare_pages;
  kv_.num_kv_heads = options_.shape.num_kv_heads;
  kv_.head_dim = options_.shape.head_dim;
  kv_.max_pages_per_slot = pages_per_slot;
  RandomData random(page_seed);
  page_table_ = random.Permutation(kv_.num_pages);
  page_table_.resize(options_.num_slots * pages_per_slot);
  device_page_table_ = data_.Put(page_table_);
  kv_.page_table = device_page_table_;
  kv_.data = data_.Put(std::vector<uint8_t>(kv_.DataBytes(), 0xFF));
  if (HasScales(kv_.format)) {
    kv_.scales = data_.Put(std::vector<float>(kv_.ScaleBytes() / sizeof(float), std::nanf("")));
  }
  slots_.num_slots = options_.num_slots;
  slots_.context_length = options_.context_length;
  slots_.vocab_size = options_.vocab_size;
  slots_.tokens = data_.Zeroes<int32_t>(int64_t{options_.num_slots} * options_.context_length);
  slots_.num_tokens = data_.Zeroes<int32_t>(options_.num_slots);
  slots_.params = data_.Put(std::vector<DrawParams>(options_.num_slots));
}

void TestModel::SetTokens(int32_t slot, const std::vector<int32_t>& tokens) {
  data_.Set(slots_.tokens + int64_t{slot} * options_.context_length, tokens);
  data_.Set(slots_.num_tokens + slot, {static_cast<int32_t>(tokens.size())});
}

void TestModel::DropPage(int32_t slot, int32_t entry) {
  page_table_[slot * kv_.max_pages_per_slot + entry] = -1;
  data_.Set(device_page_table_, page_table_);
}

void TestModel::SetRows(const std::vector<TestRow>& rows, const std::vector<int32_t>& logits_rows) {
  std::vector<int32_t> slot, position;
  for (const TestRow& row : rows) {
    slot.push_back(row.slot);
    position.push_back(row.position);
  }
  const int32_t n = static_cast<int32_t>(rows.size());
  rows_ = {n, data_.Put(slot), data_.Put(position), data_.Zeroes<int32_t>(n),
           data_.Zeroes<int32_t>(n)};
  num_logits_rows_ = static_cast<int32_t>(logits_rows.size());
  logits_rows_ = data_.Put(logits_rows);
  residual_ = data_.Zeroes<float>(n * hidden());
  q_ = data_.Activations(n * q_width());
  attn_ = data_.Activations(n * q_width());
  gated_ = data_.Activations(n * int64_t{options_.ffn_size});
  logits_ = data_.Zeroes<float>(num_logits_rows_ * int64_t{options_.vocab_size});
  ops_.PrepareRows(rows_, slots_);
}

void TestModel::Embed() { ops_.Embed({rows_, &embed_, options_.embed_scale, residual_}); }

void TestModel::Qkv(int32_t layer) {
  const LayerWeights& weights = layers_[layer];
  QkvArgs args;
  args.rows = rows_;
  args.residual = residual_;
  args.norm = weights.attn_norm;
  args.qkv = &weights.qkv;
  args.bias = weights.qkv_bias;
  args.q_norm = options_.has_qk_norm ? &weights.q_norm : nullptr;
  args.k_norm = options_.has_qk_norm ? &weights.k_norm : nullptr;
  args.rope = rope_;
  args.shape = options_.shape;
  args.kv = kv_;
  args.layer = layer;
  args.q = q_;
  ops_.Qkv(args);
}

void TestModel::Attention(int32_t layer) {
  AttentionArgs args;
  args.rows = rows_;
  args.q = q_;
  args.shape = options_.shape;
  args.kv = kv_;
  args.layer = layer;
  args.scale = 1.0f / std::sqrt(static_cast<float>(options_.shape.head_dim));
  args.soft_cap = options_.soft_cap;
  args.window = options_.window;
  args.out = attn_;
  ops_.Attention(args);
}

void TestModel::ProjectAttention(int32_t layer) {
  const LayerWeights& weights = layers_[layer];
  const Norm* post_norm = options_.has_post_norm ? &weights.attn_post_norm : nullptr;
  ops_.Project({rows_, attn_, &weights.o, weights.o_bias, post_norm, residual_});
}

void TestModel::GateUp(int32_t layer) {
  const LayerWeights& weights = layers_[layer];
  ops_.GateUp({rows_, residual_, weights.ffn_norm, &weights.gate_up, weights.gate_up_bias,
               options_.gate, gated_});
}

void TestModel::ProjectFfn(int32_t layer) {
  const LayerWeights& weights = layers_[layer];
  const Norm* post_norm = options_.has_post_norm ? &weights.ffn_post_norm : nullptr;
  ops_.Project({rows_, gated_, &weights.down, weights.down_bias, post_norm, residual_});
}

void TestModel::Head() {
  HeadArgs args;
  args.rows = rows_;
  args.residual = residual_;
  args.num_logits_rows = num_logits_rows_;
  args.logits_rows = logits_rows_;
  args.norm = final_norm_;
  args.output = &output_;
  args.bias = output_bias_;
  args.logit_scale = options_.logit_scale;
  args.soft_cap = options_.logit_cap;
  args.logits = logits_;
  ops_.Head(args);
}

std::vector<float> TestModel::Forward(const std::vector<TestRow>& rows,
                                      const std::vector<int32_t>& logits_rows) {
  SetRows(rows, logits_rows);
  Embed();
  for (int32_t layer = 0; layer < options_.num_layers; ++layer) {
    Qkv(layer);
    Attention(layer);
    ProjectAttention(layer);
    GateUp(layer);
    ProjectFfn(layer);
  }
  Head();
  return logits();
}

void TestModel::set_kv(const std::vector<uint8_t>& data, const std::vector<float>& scales) {
  data_.Set(static_cast<uint8_t*>(kv_.data), data);
  if (!scales.empty()) data_.Set(kv_.scales, scales);
}

std::vector<float> TestModel::CachedVectors(int32_t slot, int32_t layer, int32_t side,
                                            int32_t begin, int32_t end) {
  const std::vector<uint8_t> data = kv_data();
  const std::vector<float> scales = kv_scales();
  const int32_t head_dim = kv_.head_dim;
  std::vector<float> result;
  for (int32_t position = begin; position < end; ++position) {
    const int32_t page = page_table_[slot * kv_.max_pages_per_slot + position / kPageTokens];
    for (int32_t head = 0; head < kv_.num_kv_heads; ++head) {
      const int64_t element = kv_.ElementOffset(layer, page, side, head, position % kPageTokens);
      std::vector<float> vector(head_dim);
      const float scale = scales.empty() ? 0.0f : scales[element / head_dim];
      DecodeKv(kv_.format, data.data() + element * ElementBytes(kv_.format), &scale, head_dim,
               vector.data());
      result.insert(result.end(), vector.begin(), vector.end());
    }
  }
  return result;
}

}  // namespace tandem::kernels
