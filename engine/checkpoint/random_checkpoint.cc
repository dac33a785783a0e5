#include "engine/checkpoint/random_checkpoint.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "engine/text/byte_alphabet.h"
#include "kernels/random_weight.h"

namespace tandem {
namespace {

using kernels::HostMatrix;

constexpr uint64_t kSeed = 0x7A6D;
constexpr float kNormDeviation = 0.15f;
constexpr float kBiasDeviation = 0.2f;
constexpr float kEmbeddingDeviation = 0.5f;
constexpr float kLogitDeviation = 3.0f;

struct Shape {
  const char* name;
  const char* architecture;
  int32_t num_layers;
  int32_t hidden_size;
  int32_t ffn_size;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t vocab_size;
  int32_t context_length;
  double rope_base;
  float norm_epsilon;
  bool tied_output;
  bool qkv_bias;
};

// Sizes of SmolLM2-135M, Qwen2-1.5B, Llama-3-8B and Llama-2-7B as their publishers give them.
constexpr Shape kShapes[] = {
    {"tiny", "llama", 2, 64, 192, 4, 2, 64, 512, 1024, 10000.0, 1e-5f, false, true},
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 100000.0, 1e-5f, true, false},
    {"qwen2-1.5b", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 32768, 1000000.0, 1e-6f, true,
     true},
    {"llama3-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 8192, 500000.0, 1e-5f, false,
     false},
    {"llama2-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 10000.0, 1e-5f, false, false},
};

ModelConfig ConfigOf(const Shape& shape) {
  ModelConfig config;
  config.architecture = shape.architecture;
  config.name = std::string(kRandomPrefix) + shape.name;
  config.num_layers = shape.num_layers;
  config.hidden_size = shape.hidden_size;
  config.ffn_size = shape.ffn_size;
  config.vocab_size = shape.vocab_size;
  config.context_length = shape.context_length;
  config.attention = {shape.num_heads, shape.num_kv_heads, shape.head_dim};
  config.norm_epsilon = shape.norm_epsilon;
  config.rope_base = shape.rope_base;
  config.rotary_dim = shape.head_dim;
  config.rope_pairs = kernels::RopePairs::kHalves;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  config.layer_windows.assign(static_cast<size_t>(shape.num_layers), 0);
  config.tied_output = shape.tied_output;
  return config;
}

class Random final : public Checkpoint {
 public:
  explicit Random(const Shape& shape) : config_(ConfigOf(shape)), has_bias_(shape.qkv_bias) {}

  const ModelConfig& config() const override { return config_; }

  bool Has(TensorRole role, int32_t) const override {
    switch (role) {
      case TensorRole::kOutput:
        return !config_.tied_output;
      case TensorRole::kQBias:
      case TensorRole::kKBias:
      case TensorRole::kVBias:
        return has_bias_;
      case TensorRole::kQNorm:
      case TensorRole::kKNorm:
      case TensorRole::kOBias:
      case TensorRole::kPostAttentionNorm:
      case TensorRole::kPostFfnNorm:
        return false;
      default:
        return true;
    }
  }

  absl::StatusOr<HostMatrix> Matrix(TensorRole role, int32_t layer) const override {
    const kernels::AttentionShape& attention = config_.attention;
    const int32_t q_width = attention.num_heads * attention.head_dim;
    const int32_t kv_width = attention.num_kv_heads * attention.head_dim;
    // What two projections of each layer add to the residual stream sums up to about one.
    const float share = 1.0f / std::sqrt(2.0f * static_cast<float>(config_.num_layers));
    const auto matrix = [&](int32_t rows, int32_t cols, float size) {
      return HostMatrix{nullptr, kernels::DType::kBF16, rows,
                        cols,    SeedOf(role, layer),   size / std::sqrt(static_cast<float>(cols))};
    };
    switch (role) {
      case TensorRole::kTokenEmbedding: {
        HostMatrix table = matrix(config_.vocab_size, config_.hidden_size, 1.0f);
        if (!config_.tied_output) table.deviation = kEmbeddingDeviation;
        return table;
      }
      case TensorRole::kOutput:
        if (!Has(role, layer)) break;
        return matrix(config_.vocab_size, config_.hidden_size, kLogitDeviation);
      case TensorRole::kQ:
        return matrix(q_width, config_.hidden_size, 1.0f);
      case TensorRole::kK:
      case TensorRole::kV:
        return matrix(kv_width, config_.hidden_size, 1.0f);
      case TensorRole::kO:
        return matrix(config_.hidden_size, q_width, share);
      case TensorRole::kGate:
      case TensorRole::kUp:
        return matrix(config_.ffn_size, config_.hidden_size, 1.0f);
      case TensorRole::kDown:
        return matrix(config_.hidden_size, config_.ffn_size, 2.0f * share);
      default:
        break;
    }
    return NotFound("a random model has no matrix ", std::string(Name(role)));
  }

  absl::StatusOr<std::vector<float>> Vector(TensorRole role, int32_t layer) const override {
    const kernels::AttentionShape& attention = config_.attention;
    switch (role) {
      case TensorRole::kOutputNorm:
        // A tied output has the embedding's small values: the norm makes up for it.
        return Drawn(config_.hidden_size, config_.tied_output ? kLogitDeviation : 1.0f,
                     kNormDeviation, role, layer);
      case TensorRole::kAttentionNorm:
      case TensorRole::kFfnNorm:
        return Drawn(config_.hidden_size, 1.0f, kNormDeviation, role, layer);
      case TensorRole::kQBias:
        if (!has_bias_) break;
        return Drawn(attention.num_heads * attention.head_dim, 0.0f, kBiasDeviation, role, layer);
      case TensorRole::kKBias:
      case TensorRole::kVBias:
        if (!has_bias_) break;
        return Drawn(attention.num_kv_heads * attention.head_dim, 0.0f, kBiasDeviation, role,
                     layer);
      default:
        break;
    }
    return NotFound("a random model has no vector ", std::string(Name(role)));
  }

  absl::StatusOr<TokenizerData> Tokenizer() const override {
    TokenizerData data;
    data.kind = TokenizerKind::kByteLevelBpe;
    data.pre_tokenizer = "gpt-2";
    for (int32_t id = 0; id < config_.vocab_size; ++id) {
      const bool is_byte = id < 256;
      data.tokens.push_back(is_byte ? SpellingOfBytes(std::string(1, static_cast<char>(id)))
                                    : absl::StrCat("<", id, ">"));
      data.types.push_back(is_byte ? TokenType::kNormal : TokenType::kUserDefined);
    }
    data.eos_id = config_.vocab_size - 1;
    data.types.back() = TokenType::kControl;
    data.end_ids = {data.eos_id};
    return data;
  }

  std::string WeightsFingerprint() const override {
    return Fingerprinter().Add(config_.name).Add(static_cast<int64_t>(kSeed)).Hex();
  }

 private:
  static uint64_t SeedOf(TensorRole role, int32_t layer) {
    return kSeed << 32 | static_cast<uint64_t>(layer) << 8 | static_cast<uint64_t>(role);
  }
  static std::vector<float> Drawn(int32_t count, float middle, float deviation, TensorRole role,
                                  int32_t layer) {
    std::vector<float> values;
    for (int32_t i = 0; i < count; ++i) {
      const uint32_t bits = uint32_t{kernels::RandomWeight(SeedOf(role, layer), i, deviation)}
                            << 16;
      float drawn;
      std::memcpy(&drawn, &bits, sizeof(drawn));
      values.push_back(middle == 0.0f ? drawn : middle * (1.0f + drawn));
    }
    return values;
  }

  const ModelConfig config_;
  const bool has_bias_;
};

}  // namespace

std::vector<std::string> RandomShapes() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.push_back(shape.name);
  return names;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> RandomCheckpoint(const std::string& shape) {
  for (const Shape& known : kShapes) {
    if (shape == known.name) return std::unique_ptr<Checkpoint>(new Random(known));
  }
  return NotFound("no random model ", shape, ": there are ", absl::StrJoin(RandomShapes(), ", "));
}

}  // namespace tandem
