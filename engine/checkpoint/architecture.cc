#include "engine/checkpoint/architecture.h"

#include <array>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"

namespace tandem {
namespace {

// Limits far above real models; they keep every product of two of them inside 63 bits.
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocabulary = 1 << 24;
constexpr int64_t kMaxContext = 1 << 24;
constexpr int64_t kMaxHeads = 1 << 12;
constexpr int64_t kMaxGroup = 64;  // query heads of one kv head, as AttentionShape has it
// RoPE base where a file has none: the value of the Llama 1 paper's code, and what llama.cpp and
// transformers take.
constexpr double kLlamaRopeBase = 10000.0;

// Keys of the architecture that are read here, or that say nothing about what is computed.
constexpr std::string_view kKnownKeys[] = {
    "attention.causal",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_used_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "tensor_data_layout",
    "vocab_size",
};

// The keys of one architecture, without its name in front of each.
class ArchitectureKeys final {
 public:
  ArchitectureKeys(const GgufFile& file, const std::string& architecture)
      : file_(file), prefix_(architecture + ".") {}

  bool Has(const char* key) const { return file_.Has(prefix_ + key); }
  absl::StatusOr<int32_t> Int(const char* key, int64_t low, int64_t high) const {
    ASSIGN_OR_RETURN(const int64_t value, file_.Int(prefix_ + key, low, high));
    return static_cast<int32_t>(value);
  }
  absl::StatusOr<int32_t> IntOr(const char* key, int64_t low, int64_t high, int32_t missing) const {
    if (!Has(key)) return missing;
    return Int(key, low, high);
  }
  // A number above zero.
  absl::StatusOr<double> Positive(const char* key) const {
    ASSIGN_OR_RETURN(const double value, file_.Real(prefix_ + key));
    if (!(value > 0.0)) {
      return InvalidArgument("key ", Quoted(prefix_ + key), " is ", value, ": it must be above 0");
    }
    return value;
  }
  absl::StatusOr<double> PositiveOr(const char* key, double missing) const {
    if (!Has(key)) return missing;
    return Positive(key);
  }
  absl::StatusOr<bool> BoolOr(const char* key, bool missing) const {
    if (!Has(key)) return missing;
    return file_.Bool(prefix_ + key);
  }
  absl::StatusOr<std::string> TextOr(const char* key, const char* missing) const {
    if (!Has(key)) return std::string(missing);
    return file_.Text(prefix_ + key);
  }

  absl::Status RefuseUnknown() const {
    for (auto it = file_.values().lower_bound(prefix_); it != file_.values().end(); ++it) {
      if (!it->first.starts_with(prefix_)) break;
      const std::string_view rest = it->first.substr(prefix_.size());
      bool known = false;
      for (const std::string_view key : kKnownKeys) known = known || key == rest;
      if (!known) return Unimplemented("key ", Quoted(it->first), " is not supported");
    }
    return absl::OkStatus();
  }

 private:
  const GgufFile& file_;
  const std::string prefix_;
};

absl::Status ReadAttention(const ArchitectureKeys& keys, ModelConfig& config) {
  kernels::AttentionShape& attention = config.attention;
  ASSIGN_OR_RETURN(attention.num_heads, keys.Int("attention.head_count", 1, kMaxHeads));
  ASSIGN_OR_RETURN(attention.num_kv_heads,
                   keys.IntOr("attention.head_count_kv", 1, kMaxHeads, attention.num_heads));
  if (attention.num_heads % attention.num_kv_heads != 0 ||
      attention.num_heads / attention.num_kv_heads > kMaxGroup) {
    return InvalidArgument(attention.num_heads, " query heads over ", attention.num_kv_heads,
                           " kv heads: the ratio must be a whole number of at most ", kMaxGroup);
  }
  if (keys.Has("attention.key_length")) {
    ASSIGN_OR_RETURN(attention.head_dim, keys.Int("attention.key_length", 1, kMaxWidth));
  } else if (config.hidden_size % attention.num_heads != 0) {
    return InvalidArgument("the file has no attention.key_length, and ", config.hidden_size,
                           " (embedding_length) is not a multiple of ", attention.num_heads,
                           " heads");
  } else {
    attention.head_dim = config.hidden_size / attention.num_heads;
  }
  ASSIGN_OR_RETURN(const int32_t value_length,
                   keys.IntOr("attention.value_length", 1, kMaxWidth, attention.head_dim));
  if (value_length != attention.head_dim) {
    return Unimplemented("keys of ", attention.head_dim, " and values of ", value_length,
                         " dimensions: different lengths are not supported");
  }
  if (int64_t{attention.num_heads} * attention.head_dim > kMaxWidth) {
    return InvalidArgument(attention.num_heads, " heads of ", attention.head_dim,
                           " dimensions: together at most ", kMaxWidth);
  }
  ASSIGN_OR_RETURN(const bool causal, keys.BoolOr("attention.causal", true));
  if (!causal) return Unimplemented("attention that is not causal is not supported");
  config.attention_scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
  return absl::OkStatus();
}

absl::Status ReadRopeScaling(const ArchitectureKeys& keys, RopeScaling& scaling) {
  // Files older than rope.scaling.* name a linear factor alone.
  if (keys.Has("rope.scale_linear") && !keys.Has("rope.scaling.type")) {
    scaling.kind = RopeScaling::Kind::kLinear;
    ASSIGN_OR_RETURN(scaling.factor, keys.Positive("rope.scale_linear"));
    return absl::OkStatus();
  }
  // A factor alone is linear, as llama.cpp reads it.
  ASSIGN_OR_RETURN(
      const std::string type,
      keys.TextOr("rope.scaling.type", keys.Has("rope.scaling.factor") ? "linear" : "none"));
  if (type == "none") return absl::OkStatus();
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::kLinear;
  } else if (type == "yarn") {
    scaling.kind = RopeScaling::Kind::kYarn;
    ASSIGN_OR_RETURN(scaling.original_context,
                     keys.Int("rope.scaling.original_context_length", 1, kMaxContext));
    ASSIGN_OR_RETURN(scaling.beta_fast,
                     keys.PositiveOr("rope.scaling.yarn_beta_fast", scaling.beta_fast));
    ASSIGN_OR_RETURN(scaling.beta_slow,
                     keys.PositiveOr("rope.scaling.yarn_beta_slow", scaling.beta_slow));
  } else {
    return Unimplemented("RoPE scaling type ", Quoted(type),
                         " is not supported: none, linear and yarn are");
  }
  ASSIGN_OR_RETURN(scaling.factor, keys.Positive("rope.scaling.factor"));
  return absl::OkStatus();
}

absl::Status ReadRope(const GgufFile& file, const ArchitectureKeys& keys, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.rope_base, keys.PositiveOr("rope.freq_base", kLlamaRopeBase));
  // Llama turns whole heads unless the file says otherwise.
  ASSIGN_OR_RETURN(
      config.rotary_dim,
      keys.IntOr("rope.dimension_count", 2, config.attention.head_dim, config.attention.head_dim));
  if (config.rotary_dim % 2 != 0) {
    return InvalidArgument("RoPE over ", config.rotary_dim, " dimensions: the number must be even");
  }
  config.rope_pairs = kernels::RopePairs::kInterleaved;
  RETURN_IF_ERROR(ReadRopeScaling(keys, config.rope_scaling));

  const GgufTensor* factors = file.FindTensor(kRopeFactorsTensor);
  if (factors == nullptr) return absl::OkStatus();
  if (factors->dtype != kernels::DType::kF32 || factors->num_dims != 1 ||
      factors->dims[0] != config.rotary_dim / 2) {
    return InvalidArgument("tensor ", kRopeFactorsTensor, " must be F32 [", config.rotary_dim / 2,
                           "]");
  }
  config.rope_scaling.freq_factors.resize(static_cast<size_t>(factors->dims[0]));
  std::memcpy(config.rope_scaling.freq_factors.data(), factors->bytes.data(),
              factors->bytes.size());
  for (const float factor : config.rope_scaling.freq_factors) {
    if (!std::isfinite(factor) || !(factor > 0.0f)) {
      return InvalidArgument("tensor ", kRopeFactorsTensor, " has ", factor,
                             ": factors must be above 0");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> ReadVocabSize(const GgufFile& file, const ArchitectureKeys& keys) {
  if (keys.Has("vocab_size")) return keys.Int("vocab_size", 1, kMaxVocabulary);
  if (file.Has("tokenizer.ggml.tokens")) {
    const int64_t count = file.values().at("tokenizer.ggml.tokens").count;
    if (count < 1 || count > kMaxVocabulary) {
      return InvalidArgument("the vocabulary has ", count, " tokens: it must have 1 to ",
                             kMaxVocabulary);
    }
    return static_cast<int32_t>(count);
  }
  return InvalidArgument(
      "the size of the vocabulary is missing: neither vocab_size nor tokenizer.ggml.tokens is "
      "there");
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file) {
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, file.Text("general.architecture"));
  if (config.architecture != "llama") {
    return Unimplemented("architecture ", Quoted(config.architecture),
                         " is not supported: llama is");
  }
  if (file.Has("general.name")) {
    ASSIGN_OR_RETURN(config.name, file.Text("general.name"));
  }
  const ArchitectureKeys keys(file, config.architecture);
  for (const char* key : {"expert_count", "expert_used_count"}) {
    ASSIGN_OR_RETURN(const int32_t experts, keys.IntOr(key, 0, INT32_MAX, 0));
    if (experts != 0) {
      return Unimplemented("mixtures of experts are not supported: ", key, " is ", experts);
    }
  }
  RETURN_IF_ERROR(keys.RefuseUnknown());

  ASSIGN_OR_RETURN(config.num_layers, keys.Int("block_count", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.hidden_size, keys.Int("embedding_length", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.ffn_size, keys.Int("feed_forward_length", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.context_length, keys.Int("context_length", 1, kMaxContext));
  ASSIGN_OR_RETURN(config.vocab_size, ReadVocabSize(file, keys));
  // No default: 1e-5 and 1e-6 are both common, and the wrong one is not seen until answers drift.
  ASSIGN_OR_RETURN(const double epsilon, keys.Positive("attention.layer_norm_rms_epsilon"));
  config.norm_epsilon = static_cast<float>(epsilon);
  if (!(config.norm_epsilon > 0.0f) || !(config.norm_epsilon < 1.0f)) {
    return InvalidArgument("the epsilon of the norms is ", epsilon, ": it must be between 0 and 1");
  }
  RETURN_IF_ERROR(ReadAttention(keys, config));
  RETURN_IF_ERROR(ReadRope(file, keys, config));
  config.norm_order = kernels::NormOrder::kRoundThenScale;
  config.gate = kernels::GateKind::kSilu;
  config.layer_windows.assign(static_cast<size_t>(config.num_layers), 0);
  config.tied_output = file.FindTensor("output.weight") == nullptr;
  return config;
}

std::vector<TensorSpec> TensorSpecs(const ModelConfig& config) {
  TANDEM_CHECK(config.architecture == "llama") << config.architecture;
  const int32_t hidden = config.hidden_size;
  const int32_t q_rows = config.attention.num_heads * config.attention.head_dim;
  const int32_t kv_rows = config.attention.num_kv_heads * config.attention.head_dim;
  std::vector<TensorSpec> specs = {
      {TensorRole::kTokenEmbedding, -1, "token_embd.weight", config.vocab_size, hidden},
      {TensorRole::kOutputNorm, -1, "output_norm.weight", hidden, 0},
      {TensorRole::kOutput, -1, "output.weight", config.vocab_size, hidden, false},
  };
  const TensorSpec per_layer[] = {
      {TensorRole::kAttentionNorm, 0, "attn_norm.weight", hidden, 0},
      {TensorRole::kQ, 0, "attn_q.weight", q_rows, hidden},
      {TensorRole::kK, 0, "attn_k.weight", kv_rows, hidden},
      {TensorRole::kV, 0, "attn_v.weight", kv_rows, hidden},
      {TensorRole::kQBias, 0, "attn_q.bias", q_rows, 0, false},
      {TensorRole::kKBias, 0, "attn_k.bias", kv_rows, 0, false},
      {TensorRole::kVBias, 0, "attn_v.bias", kv_rows, 0, false},
      {TensorRole::kO, 0, "attn_output.weight", hidden, q_rows},
      {TensorRole::kOBias, 0, "attn_output.bias", hidden, 0, false},
      {TensorRole::kFfnNorm, 0, "ffn_norm.weight", hidden, 0},
      {TensorRole::kGate, 0, "ffn_gate.weight", config.ffn_size, hidden},
      {TensorRole::kUp, 0, "ffn_up.weight", config.ffn_size, hidden},
      {TensorRole::kDown, 0, "ffn_down.weight", hidden, config.ffn_size},
  };
  specs.reserve(specs.size() + static_cast<size_t>(config.num_layers) * std::size(per_layer));
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const TensorSpec& spec : per_layer) {
      specs.push_back(spec);
      specs.back().layer = layer;
      specs.back().name = absl::StrCat("blk.", layer, ".", spec.name);
    }
  }
  return specs;
}

}  // namespace tandem
