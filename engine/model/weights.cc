#include "engine/model/weights.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"

namespace tandem {
namespace {

using kernels::HostMatrix;

int64_t Bytes(const HostMatrix& matrix) {
  const kernels::DTypeInfo format = kernels::Info(matrix.dtype);
  return int64_t{matrix.rows} * (matrix.cols / format.block_elements) * format.block_bytes;
}

class Loader final {
 public:
  Loader(const Checkpoint& checkpoint, kernels::Ops& ops,
         const std::function<void(int64_t, int64_t)>& progress)
      : checkpoint_(checkpoint), config_(checkpoint.config()), ops_(ops), progress_(progress) {}

  absl::StatusOr<ModelWeights> Load() {
    RETURN_IF_ERROR(CountBytes());
    Report(0);
    ModelWeights weights;
    ASSIGN_OR_RETURN(weights.embedding, Matrix({TensorRole::kTokenEmbedding}, 0));
    weights.layers.reserve(static_cast<size_t>(config_.num_layers));
    for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
      ASSIGN_OR_RETURN(LayerWeights loaded, Layer(layer));
      weights.layers.push_back(std::move(loaded));
    }
    ASSIGN_OR_RETURN(weights.output_norm, Norm(TensorRole::kOutputNorm, 0));
    if (!config_.tied_output) {
      ASSIGN_OR_RETURN(weights.output, Matrix({TensorRole::kOutput}, 0));
    }
    return weights;
  }

 private:
  absl::Status CountBytes() {
    std::vector<std::pair<TensorRole, int32_t>> places = {{TensorRole::kTokenEmbedding, 0}};
    if (!config_.tied_output) places.emplace_back(TensorRole::kOutput, 0);
    for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
      for (const TensorRole role : {TensorRole::kQ, TensorRole::kK, TensorRole::kV, TensorRole::kO,
                                    TensorRole::kGate, TensorRole::kUp, TensorRole::kDown}) {
        places.emplace_back(role, layer);
      }
    }
    for (const auto& [role, layer] : places) {
      ASSIGN_OR_RETURN(const HostMatrix matrix, checkpoint_.Matrix(role, layer));
      total_ += Bytes(matrix);
    }
    return absl::OkStatus();
  }

  void Report(int64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

  // Matrices of one layer stacked along rows.
  absl::StatusOr<kernels::Weight> Matrix(std::initializer_list<TensorRole> roles, int32_t layer) {
    std::vector<HostMatrix> parts;
    std::string what;
    int64_t bytes = 0;
    for (const TensorRole role : roles) {
      ASSIGN_OR_RETURN(const HostMatrix part, checkpoint_.Matrix(role, layer));
      parts.push_back(part);
      bytes += Bytes(part);
      absl::StrAppend(&what, what.empty() ? "" : "+", std::string(Name(role)));
    }
    if (*roles.begin() >= TensorRole::kAttentionNorm) absl::StrAppend(&what, " of layer ", layer);
    ASSIGN_OR_RETURN(kernels::Weight weight, ops_.PrepareWeight(parts, what));
    Report(bytes);
    return weight;
  }

  absl::StatusOr<kernels::Buffer> ToDevice(const std::vector<float>& values,
                                           std::string_view what) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    ASSIGN_OR_RETURN(kernels::Buffer buffer, ops_.Allocate(bytes, what));
    ops_.CopyToDevice(buffer.data(), values.data(), bytes);
    return buffer;
  }

  absl::StatusOr<NormWeights> Norm(TensorRole role, int32_t layer) {
    ASSIGN_OR_RETURN(const std::vector<float> values, checkpoint_.Vector(role, layer));
    NormWeights loaded;
    ASSIGN_OR_RETURN(loaded.weight, ToDevice(values, Name(role)));
    loaded.norm = {.weight = loaded.weight.as<float>(),
                   .width = static_cast<int32_t>(values.size()),
                   .epsilon = config_.norm_epsilon,
                   .offset = config_.norm_offset,
                   .order = config_.norm_order};
    return loaded;
  }

  absl::StatusOr<std::optional<NormWeights>> OptionalNorm(TensorRole role, int32_t layer) {
    if (!checkpoint_.Has(role, layer)) return std::optional<NormWeights>();
    ASSIGN_OR_RETURN(NormWeights loaded, Norm(role, layer));
    return std::optional<NormWeights>(std::move(loaded));
  }

  // Biases stacked like the rows of their weight; zeros for a part without one. A null buffer where
  // no part has one.
  absl::StatusOr<kernels::Buffer> Bias(std::initializer_list<TensorRole> roles,
                                       const kernels::Weight& weight, int32_t layer) {
    TANDEM_CHECK(roles.size() == weight.parts.size()) << weight.parts.size();
    std::vector<float> stacked(static_cast<size_t>(weight.rows), 0.0f);
    bool any = false;
    size_t part = 0;
    for (const TensorRole role : roles) {
      const auto first_row = static_cast<size_t>(weight.parts[part++].first_row);
      if (!checkpoint_.Has(role, layer)) continue;
      ASSIGN_OR_RETURN(const std::vector<float> values, checkpoint_.Vector(role, layer));
      TANDEM_CHECK(first_row + values.size() <= stacked.size()) << Name(role);
      std::copy(values.begin(), values.end(), stacked.begin() + static_cast<int64_t>(first_row));
      any = true;
    }
    if (!any) return kernels::Buffer();
    return ToDevice(stacked, Name(*roles.begin()));
  }

  absl::StatusOr<LayerWeights> Layer(int32_t layer) {
    LayerWeights out;
    ASSIGN_OR_RETURN(out.attention_norm, Norm(TensorRole::kAttentionNorm, layer));
    ASSIGN_OR_RETURN(out.qkv, Matrix({TensorRole::kQ, TensorRole::kK, TensorRole::kV}, layer));
    ASSIGN_OR_RETURN(
        out.qkv_bias,
        Bias({TensorRole::kQBias, TensorRole::kKBias, TensorRole::kVBias}, out.qkv, layer));
    ASSIGN_OR_RETURN(out.q_norm, OptionalNorm(TensorRole::kQNorm, layer));
    ASSIGN_OR_RETURN(out.k_norm, OptionalNorm(TensorRole::kKNorm, layer));
    ASSIGN_OR_RETURN(out.o, Matrix({TensorRole::kO}, layer));
    ASSIGN_OR_RETURN(out.o_bias, Bias({TensorRole::kOBias}, out.o, layer));
    ASSIGN_OR_RETURN(out.post_attention_norm, OptionalNorm(TensorRole::kPostAttentionNorm, layer));
    ASSIGN_OR_RETURN(out.ffn_norm, Norm(TensorRole::kFfnNorm, layer));
    ASSIGN_OR_RETURN(out.gate_up, Matrix({TensorRole::kGate, TensorRole::kUp}, layer));
    ASSIGN_OR_RETURN(out.down, Matrix({TensorRole::kDown}, layer));
    ASSIGN_OR_RETURN(out.post_ffn_norm, OptionalNorm(TensorRole::kPostFfnNorm, layer));
    return out;
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  kernels::Ops& ops_;
  const std::function<void(int64_t, int64_t)>& progress_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

}  // namespace

absl::StatusOr<ModelWeights> LoadWeights(const Checkpoint& checkpoint, kernels::Ops& ops,
                                         const std::function<void(int64_t, int64_t)>& progress) {
  return Loader(checkpoint, ops, progress).Load();
}

}  // namespace tandem
