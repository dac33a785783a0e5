// The checked mode's question to a backend: is what an operation has just written finite? One
// definition for host and device memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/tensor.h"

namespace tandem::kernels {

// Outputs of the operations of ops.h.
enum class CheckedOutput : int32_t {
  kNone,
  kEmbedding,
  kQueries,
  kCache,  // k and v as they were written
  kAttention,
  kAttentionProjection,  // the residual stream behind it
  kGate,
  kDownProjection,  // the residual stream behind it
  kLogits,
};
constexpr std::string_view Name(CheckedOutput output) {
  switch (output) {
    case CheckedOutput::kNone:
      return "none";
    case CheckedOutput::kEmbedding:
      return "embedding";
    case CheckedOutput::kQueries:
      return "queries";
    case CheckedOutput::kCache:
      return "keys and values";
    case CheckedOutput::kAttention:
      return "attention";
    case CheckedOutput::kAttentionProjection:
      return "attention projection";
    case CheckedOutput::kGate:
      return "gate";
    case CheckedOutput::kDownProjection:
      return "down projection";
    case CheckedOutput::kLogits:
      return "logits";
  }
  return "?";
}

// The first value of a row, in the order of operations and then of indices, that is NaN or
// infinite. All zero: none.
struct NonFinite {
  CheckedOutput output = CheckedOutput::kNone;
  int32_t layer = 0;     // of the model; 0 where the output belongs to no layer
  int32_t position = 0;  // of the row
  int32_t index = 0;     // within the row's output; kCache: keys of all kv heads, then values
};

constexpr bool IsFiniteF32(uint32_t bits) { return (bits & 0x7F800000u) != 0x7F800000u; }
constexpr bool IsFiniteBF16(uint16_t bits) { return (bits & 0x7F80u) != 0x7F80u; }
constexpr bool IsFiniteFp8E4M3(uint8_t bits) { return (bits & 0x7Fu) != 0x7Fu; }  // it has no inf

// Element `element` of a pool's data, with its scale where the format has them.
constexpr bool IsFiniteInPool(const KvPool& kv, int64_t element) {
  if (HasScales(kv.format) &&
      !IsFiniteF32(reinterpret_cast<const uint32_t*>(kv.scales)[element / kv.head_dim])) {
    return false;
  }
  switch (kv.format) {
    case KvFormat::kF32:
      return IsFiniteF32(static_cast<const uint32_t*>(kv.data)[element]);
    case KvFormat::kBF16:
      return IsFiniteBF16(static_cast<const uint16_t*>(kv.data)[element]);
    case KvFormat::kFp8E4M3:
      return IsFiniteFp8E4M3(static_cast<const uint8_t*>(kv.data)[element]);
    case KvFormat::kInt8:
      return true;
  }
  return true;
}

}  // namespace tandem::kernels
