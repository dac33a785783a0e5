// What a worker will need of its device's memory, counted before any of it is taken.
//
// Counted by the code that takes it: the model is loaded and the engine made once on a backend that
// adds up what is asked for and gives nothing, so that no formula can fall behind.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/decode_engine.h"
#include "engine/model/model.h"
#include "kernels/ops.h"

namespace tandem {

struct MemoryPlan {
  int64_t weights = 0;      // matrices, in the form that the backend multiplies
  int64_t activations = 0;  // RoPE tables, norms, biases, activations of a step
  int64_t slots = 0;        // of sessions: tokens, parameters, lists; logits of a step
  int64_t kv_pages = 0;     // pages with scales
  int64_t workspace = 0;    // that the backend takes for itself
  kernels::MemoryInfo device;
  std::string capacity;  // DecodeEngine::CapacityText: sessions, pages, tokens

  int64_t needed() const { return weights + activations + slots + kv_pages + workspace; }
  // A line for each kind of memory, the sum with what the device has, and what that is room for.
  std::string Table() const;
  // RESOURCE_EXHAUSTED with what is needed and what is free; OK where the device does not say.
  absl::Status Fits() const;
};

// Errors are those of Model::Load and DecodeEngine::Make, which are found here first.
absl::StatusOr<MemoryPlan> PlanMemory(const Checkpoint& checkpoint,
                                      const Model::Options& model_options,
                                      const EngineOptions& engine_options, const kernels::Ops& ops);

}  // namespace tandem
