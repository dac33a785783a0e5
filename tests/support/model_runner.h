// Drives a Model directly: page pools, page tables and slots by the simplest means, no scheduler.
// For tests of logits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"
#include "kernels/ops.h"

namespace tandem::test {

class ModelRunner final {
 public:
  struct Options {
    int32_t num_slots = 1;
    int32_t tokens_per_slot = 512;     // a multiple of nothing; at most the model's context
    std::vector<int32_t> slot_tokens;  // of each slot, where they differ; empty: tokens_per_slot
    int32_t max_logits_rows = 128;     // of a step; at most the model's rows count
    kernels::KvFormat kv_format = kernels::KvFormat::kF32;
    uint64_t page_seed = 0;    // which page a slot gets: a seeded shuffle of the pool
    bool poison_cache = true;  // pools start as NaN: a value that nobody wrote must not matter
  };
  // model and ops must outlive it.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Make(const Options& options, Model& model,
                                                           kernels::Ops& ops);
  ~ModelRunner();

  // Rows of one slot in a step: tokens behind those that the slot holds.
  struct Work {
    int32_t slot = 0;
    std::vector<int32_t> tokens;
    int32_t num_logits = 0;  // logits of that many last rows
    bool continues =
        false;  // one token, whose position the device is left to find (StepRows::position -1)
  };
  // One step. Logits rows [vocab_size] in the order of work and, within it, of positions. An item
  // with no tokens adds an idle row. REQUIRES at most max_rows rows.
  absl::StatusOr<std::vector<std::vector<float>>> Step(std::span<const Work> work);

  // The same; the logits go to *logits [rows, vocab_size], whose memory is used again. `records`:
  // what the step enqueues is recorded where the backend does that; steps of equal shape then run
  // what was recorded.
  absl::Status StepInto(std::span<const Work> work, bool records, std::vector<float>* logits);

  // As many steps of at most `chunk` tokens as it takes; the logits of the last num_logits
  // positions, in order.
  absl::StatusOr<std::vector<std::vector<float>>> Run(int32_t slot, std::span<const int32_t> tokens,
                                                      int32_t chunk, int32_t num_logits);

  // Forgets what a slot holds. Its pages stay its own.
  void Reset(int32_t slot);
  // Forgets the last num_tokens tokens of a slot. What they left in its pages stays there.
  void Rewind(int32_t slot, int32_t num_tokens);
  // Slot `to` then holds the first num_tokens tokens of slot `from`: the same pages as far as they
  // are full, and a copy of the rest of the last one. REQUIRES an empty slot `to`.
  void SharePrefix(int32_t from, int32_t to, int32_t num_tokens);
  int32_t Length(int32_t slot) const {
    return static_cast<int32_t>(tokens_[static_cast<size_t>(slot)].size());
  }

 private:
  ModelRunner(const Options& options, Model& model, kernels::Ops& ops)
      : options_(options), model_(model), ops_(ops) {}
  int32_t Capacity(int32_t slot) const;
  int32_t PagesOf(int32_t slot) const;
  absl::Status Allocate();
  absl::Status AllocatePools();
  void Poison(const kernels::Buffer& buffer);

  const Options options_;
  Model& model_;
  kernels::Ops& ops_;
  std::vector<std::vector<int32_t>> tokens_;  // by slot
  kernels::Buffer slot_tokens_;               // [num_slots, context_length]
  kernels::Buffer num_tokens_;                // [num_slots]
  kernels::Buffer params_;
  kernels::Buffer row_slot_, row_position_in_, row_token_, row_position_;  // [max_rows]
  kernels::Buffer logits_rows_, logits_;
  int32_t max_logits_rows_ = 0;
  std::vector<kernels::Buffer> pool_data_, pool_scales_, page_tables_;  // by layer group
  std::vector<std::vector<int32_t>> host_tables_;  // [num_slots, max_pages_per_slot]
  std::vector<kernels::KvPool> pools_;
};

// Index of the largest value, the first of equals.
int32_t ArgMax(std::span<const float> values);

}  // namespace tandem::test
