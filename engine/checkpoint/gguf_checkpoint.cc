#include "engine/checkpoint/gguf_checkpoint.h"

#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "engine/checkpoint/architecture.h"
#include "engine/checkpoint/gguf_tokenizer.h"
#include "engine/checkpoint/random_checkpoint.h"

namespace tandem {
namespace {

std::string ShapeText(const GgufTensor& tensor) {
  std::string text = "[";
  for (int32_t i = tensor.num_dims - 1; i >= 0; --i) {
    absl::StrAppend(&text, tensor.dims[i], i > 0 ? ", " : "]");
  }
  return text;
}

bool IsFloat(kernels::DType dtype) {
  return dtype == kernels::DType::kF32 || dtype == kernels::DType::kF16 ||
         dtype == kernels::DType::kBF16;
}

absl::Status CheckTensor(const GgufTensor& tensor, const TensorSpec& spec) {
  const bool is_vector = spec.cols == 0;
  const bool fits = is_vector ? tensor.num_dims == 1 && tensor.dims[0] == spec.rows
                              : tensor.num_dims == 2 && tensor.dims[0] == spec.cols &&
                                    tensor.dims[1] == spec.rows;
  if (!fits) {
    return InvalidArgument("tensor ", spec.name, " has the shape ", ShapeText(tensor),
                           ": the configuration asks for [", spec.rows,
                           is_vector ? "" : absl::StrCat(", ", spec.cols), "]");
  }
  if (is_vector && !IsFloat(tensor.dtype)) {
    return Unimplemented("tensor ", spec.name, " is ",
                         std::string(kernels::Info(tensor.dtype).name),
                         ": vectors must be F32, F16 or BF16");
  }
  return absl::OkStatus();
}

// IEEE 754 binary16 to binary32, exact.
float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide_exponent = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (mantissa << 13));
}

float ElementOf(const GgufTensor& tensor, size_t index) {
  if (tensor.dtype == kernels::DType::kF32) {
    float value;
    std::memcpy(&value, tensor.bytes.data() + index * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t value;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof(value), sizeof(value));
  if (tensor.dtype == kernels::DType::kF16) return HalfToFloat(value);
  return std::bit_cast<float>(uint32_t{value} << 16);
}

class GgufCheckpoint final : public Checkpoint {
 public:
  using Tensors = std::map<std::pair<TensorRole, int32_t>, const GgufTensor*>;

  GgufCheckpoint(std::unique_ptr<GgufFile> file, ModelConfig config, Tensors tensors)
      : file_(std::move(file)), config_(std::move(config)), tensors_(std::move(tensors)) {}

  const ModelConfig& config() const override { return config_; }

  bool Has(TensorRole role, int32_t layer) const override { return Find(role, layer) != nullptr; }

  absl::StatusOr<kernels::HostMatrix> Matrix(TensorRole role, int32_t layer) const override {
    const GgufTensor* tensor = Find(role, layer);
    if (tensor == nullptr || tensor->num_dims != 2) return Missing(role, layer, "matrix");
    return kernels::HostMatrix{tensor->bytes.data(), tensor->dtype,
                               static_cast<int32_t>(tensor->dims[1]),
                               static_cast<int32_t>(tensor->dims[0])};
  }

  absl::StatusOr<std::vector<float>> Vector(TensorRole role, int32_t layer) const override {
    const GgufTensor* tensor = Find(role, layer);
    if (tensor == nullptr || tensor->num_dims != 1) return Missing(role, layer, "vector");
    std::vector<float> values(static_cast<size_t>(tensor->dims[0]));
    for (size_t i = 0; i < values.size(); ++i) values[i] = ElementOf(*tensor, i);
    return values;
  }

  absl::StatusOr<TokenizerData> Tokenizer() const override {
    return ReadTokenizer(*file_, config_.vocab_size);
  }

  std::string WeightsFingerprint() const override {
    Fingerprinter hash;
    AddConfig(hash);
    for (const auto& [place, tensor] : tensors_) {
      hash.Add(Name(place.first)).Add(int64_t{place.second}).Add(kernels::Info(tensor->dtype).name);
      for (const int64_t dim : tensor->dims) hash.Add(dim);
      hash.Add(tensor->bytes.data(), tensor->bytes.size());
    }
    return hash.Hex();
  }

 private:
  // Null: the file does not have it. Roles that are not per layer stand under layer -1.
  const GgufTensor* Find(TensorRole role, int32_t layer) const {
    const auto found = tensors_.find({role, role < TensorRole::kAttentionNorm ? -1 : layer});
    return found == tensors_.end() ? nullptr : found->second;
  }

  static absl::Status Missing(TensorRole role, int32_t layer, const char* kind) {
    return NotFound("the checkpoint has no ", kind, " ", std::string(Name(role)),
                    role < TensorRole::kAttentionNorm ? "" : absl::StrCat(" in layer ", layer));
  }

  // Fields that change what is computed; the name does not.
  void AddConfig(Fingerprinter& hash) const {
    const auto real = [&hash](double value) { hash.Add(std::bit_cast<int64_t>(value)); };
    hash.Add(config_.architecture);
    for (const int64_t number :
         {int64_t{config_.num_layers}, int64_t{config_.hidden_size}, int64_t{config_.ffn_size},
          int64_t{config_.vocab_size}, int64_t{config_.context_length},
          int64_t{config_.attention.num_heads}, int64_t{config_.attention.num_kv_heads},
          int64_t{config_.attention.head_dim}, int64_t{config_.rotary_dim},
          static_cast<int64_t>(config_.rope_pairs), static_cast<int64_t>(config_.rope_scaling.kind),
          int64_t{config_.rope_scaling.original_context}, static_cast<int64_t>(config_.norm_order),
          static_cast<int64_t>(config_.gate), int64_t{config_.tied_output}}) {
      hash.Add(number);
    }
    for (const double value :
         {double{config_.norm_epsilon}, config_.rope_base, config_.rope_scaling.factor,
          config_.rope_scaling.low_freq_factor, config_.rope_scaling.high_freq_factor,
          config_.rope_scaling.beta_fast, config_.rope_scaling.beta_slow,
          double{config_.norm_offset}, double{config_.embedding_scale},
          double{config_.attention_scale}, double{config_.attention_soft_cap},
          double{config_.final_soft_cap}, double{config_.logit_scale}}) {
      real(value);
    }
    hash.Add(static_cast<int64_t>(config_.rope_scaling.freq_factors.size()));
    for (const float factor : config_.rope_scaling.freq_factors) real(factor);
    for (const int32_t window : config_.layer_windows) hash.Add(int64_t{window});
  }

  std::unique_ptr<GgufFile> file_;
  ModelConfig config_;
  Tensors tensors_;  // point into file_
};

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> MakeGgufCheckpoint(std::unique_ptr<GgufFile> file) {
  ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(*file));
  // Before anything is made per layer: a layer count that no tensors stand behind asks for no
  // memory.
  if (static_cast<size_t>(config.num_layers) > file->tensors().size()) {
    return InvalidArgument("the file says that it has ", config.num_layers, " layers, and has ",
                           file->tensors().size(), " tensors");
  }
  GgufCheckpoint::Tensors tensors;
  std::set<const GgufTensor*> used = {file->FindTensor(kRopeFactorsTensor)};
  for (const TensorSpec& spec : TensorSpecs(config)) {
    const GgufTensor* tensor = file->FindTensor(spec.name);
    if (tensor == nullptr) {
      if (spec.required) return InvalidArgument("tensor ", spec.name, " is missing");
      continue;
    }
    RETURN_IF_ERROR(CheckTensor(*tensor, spec));
    tensors.emplace(std::pair(spec.role, spec.layer), tensor);
    used.insert(tensor);
  }
  for (const GgufTensor& tensor : file->tensors()) {
    if (!used.contains(&tensor)) {
      return Unimplemented("tensor ", Quoted(tensor.name), " has no place in the architecture ",
                           config.architecture, " of ", config.num_layers, " layers");
    }
  }
  return std::make_unique<GgufCheckpoint>(std::move(file), std::move(config), std::move(tensors));
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path) {
  if (path.starts_with(kRandomPrefix)) {
    return RandomCheckpoint(path.substr(kRandomPrefix.size()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  auto checkpoint = MakeGgufCheckpoint(std::move(file));
  if (!checkpoint.ok()) {
    return absl::Status(checkpoint.status().code(),
                        absl::StrCat(path, ": ", checkpoint.status().message()));
  }
  return checkpoint;
}

std::string_view Name(TensorRole role) {
  switch (role) {
    case TensorRole::kTokenEmbedding:
      return "token_embedding";
    case TensorRole::kOutputNorm:
      return "output_norm";
    case TensorRole::kOutput:
      return "output";
    case TensorRole::kAttentionNorm:
      return "attention_norm";
    case TensorRole::kQ:
      return "q";
    case TensorRole::kK:
      return "k";
    case TensorRole::kV:
      return "v";
    case TensorRole::kQBias:
      return "q_bias";
    case TensorRole::kKBias:
      return "k_bias";
    case TensorRole::kVBias:
      return "v_bias";
    case TensorRole::kQNorm:
      return "q_norm";
    case TensorRole::kKNorm:
      return "k_norm";
    case TensorRole::kO:
      return "o";
    case TensorRole::kOBias:
      return "o_bias";
    case TensorRole::kPostAttentionNorm:
      return "post_attention_norm";
    case TensorRole::kFfnNorm:
      return "ffn_norm";
    case TensorRole::kGate:
      return "gate";
    case TensorRole::kUp:
      return "up";
    case TensorRole::kDown:
      return "down";
    case TensorRole::kPostFfnNorm:
      return "post_ffn_norm";
  }
  return "?";
}

}  // namespace tandem
