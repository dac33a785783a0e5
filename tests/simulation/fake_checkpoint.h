// A checkpoint without a file: two layers, one with full attention and one with a window, as small
// as the shapes allow. Its weights are zeros; FakeOps computes hashes instead.
#pragma once

#include "engine/checkpoint/checkpoint.h"

namespace tandem::test {

class FakeCheckpoint final : public Checkpoint {
 public:
  FakeCheckpoint();

  const ModelConfig& config() const override { return config_; }
  bool Has(TensorRole role, int32_t layer) const override;
  absl::StatusOr<kernels::HostMatrix> Matrix(TensorRole role, int32_t layer) const override;
  absl::StatusOr<std::vector<float>> Vector(TensorRole role, int32_t layer) const override;
  // UNIMPLEMENTED.
  absl::StatusOr<TokenizerData> Tokenizer() const override;
  std::string WeightsFingerprint() const override;

 private:
  ModelConfig config_;
  std::vector<float> zeros_;  // the data of every matrix
};

}  // namespace tandem::test
