// Weights of a model on a backend, and its forward pass.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "kernels/ops.h"

namespace tandem {

// Layers with the same attention window share a page pool and page tables.
struct LayerGroup {
  int32_t window = 0;           // 0: full attention
  std::vector<int32_t> layers;  // ascending indices into the model's layers
};
std::vector<LayerGroup> LayerGroups(const ModelConfig& config);

// One step's inputs. Device memory, as kernels/ops.h says.
struct ForwardArgs {
  kernels::StepRows rows;
  kernels::SlotState slots;
  std::span<const kernels::KvPool> pools;  // one per layer group, in LayerGroups' order
  int32_t num_logits_rows = 0;             // 0: no logits are computed
  const int32_t* logits_rows = nullptr;
  float* logits = nullptr;  // out [num_logits_rows, vocab_size]
};

class Model final {
 public:
  struct Options {
    int32_t max_rows = 512;      // most rows of a step
    int32_t context_length = 0;  // 0: the checkpoint's; else at most that
    // Tests every operation's output for values that are not finite. Slower; the same bits.
    bool checked = false;
  };
  // done and total in bytes of weights; called from Load's thread.
  using Progress = std::function<void(int64_t done, int64_t total)>;

  // ops must outlive the model; the checkpoint may go afterwards.
  static absl::StatusOr<std::unique_ptr<Model>> Load(const Checkpoint& checkpoint,
                                                     kernels::KvFormat kv_format,
                                                     const Options& options, kernels::Ops& ops,
                                                     const Progress& progress);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const;
  const std::vector<LayerGroup>& layer_groups() const;
  int32_t context_length() const;
  int32_t max_rows() const;
  // Device memory [max_rows]: what the latest Forward found of each row. Null unless checked.
  const kernels::NonFinite* non_finite() const;

  // Enqueues PrepareRows, every layer, and the head for logits_rows. REQUIRES rows.num_rows in [1,
  // max_rows].
  void Forward(const ForwardArgs& args);

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
