#include "tests/simulation/fake_checkpoint.h"

#include "engine/base/check.h"
#include "tests/simulation/fake_arithmetic.h"

namespace tandem::test {

FakeCheckpoint::FakeCheckpoint() : zeros_(size_t{kFakeVocab} * kFakeWidth) {
  config_.architecture = "fake";
  config_.name = "fake";
  config_.num_layers = kFakeLayers;
  config_.hidden_size = kFakeWidth;
  config_.ffn_size = kFakeWidth;
  config_.vocab_size = kFakeVocab;
  config_.context_length = kFakeContext;
  config_.attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = kFakeWidth};
  config_.norm_epsilon = 1e-5f;
  config_.rope_base = 10000.0;
  config_.rotary_dim = kFakeWidth;
  config_.attention_scale = 1.0f;
  config_.layer_windows = {0, kFakeWindow};
  config_.tied_output = true;
}

bool FakeCheckpoint::Has(TensorRole role, int32_t) const {
  switch (role) {
    case TensorRole::kTokenEmbedding:
    case TensorRole::kOutputNorm:
    case TensorRole::kAttentionNorm:
    case TensorRole::kQ:
    case TensorRole::kK:
    case TensorRole::kV:
    case TensorRole::kO:
    case TensorRole::kFfnNorm:
    case TensorRole::kGate:
    case TensorRole::kUp:
    case TensorRole::kDown:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<kernels::HostMatrix> FakeCheckpoint::Matrix(TensorRole role, int32_t layer) const {
  TANDEM_CHECK(Has(role, layer)) << Name(role);
  const int32_t rows = role == TensorRole::kTokenEmbedding ? kFakeVocab : kFakeWidth;
  return kernels::HostMatrix{zeros_.data(), kernels::DType::kF32, rows, kFakeWidth};
}

absl::StatusOr<std::vector<float>> FakeCheckpoint::Vector(TensorRole role, int32_t layer) const {
  TANDEM_CHECK(Has(role, layer)) << Name(role);
  return std::vector<float>(kFakeWidth, 0.0f);
}

absl::StatusOr<TokenizerData> FakeCheckpoint::Tokenizer() const {
  return absl::UnimplementedError("the fake checkpoint has no tokenizer");
}

std::string FakeCheckpoint::WeightsFingerprint() const { return std::string(32, '0'); }

}  // namespace tandem::test
