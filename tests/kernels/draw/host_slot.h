// A SlotState of one slot in host memory, for tests of the draw.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace tandem::kernels {

struct HostSlot {
  DrawParams params;
  std::vector<int32_t> tokens = {0};  // the row runs at the last one
  std::vector<uint32_t> defined_bits;
  std::vector<uint32_t> allowed_bits;
  std::vector<int32_t> bias_ids;
  std::vector<float> bias_values;
  std::vector<int32_t> end_ids;
  std::vector<int32_t> report_ids;

  int32_t row_position() const { return static_cast<int32_t>(tokens.size()) - 1; }
  int32_t position() const { return static_cast<int32_t>(tokens.size()); }

  // Leaves the bits of these ids set.
  static std::vector<uint32_t> Bits(int32_t vocab_size, const std::vector<int32_t>& ids) {
    std::vector<uint32_t> bits((vocab_size + 31) / 32);
    for (const int32_t id : ids) bits[id / 32] |= uint32_t{1} << (id % 32);
    return bits;
  }

  // Points into this object; valid while it stays as it is.
  SlotState State(int32_t vocab_size) {
    num_tokens_ = position();
    has_allowed_ = allowed_bits.empty() ? 0 : 1;
    num_bias_ = static_cast<int32_t>(bias_ids.size());
    num_end_ids_ = static_cast<int32_t>(end_ids.size());
    num_report_ids_ = static_cast<int32_t>(report_ids.size());
    SlotState state;
    state.num_slots = 1;
    state.context_length = num_tokens_;
    state.vocab_size = vocab_size;
    state.tokens = tokens.data();
    state.num_tokens = &num_tokens_;
    state.params = &params;
    state.defined_bits = defined_bits.empty() ? nullptr : defined_bits.data();
    state.allowed_bits = allowed_bits.empty() ? nullptr : allowed_bits.data();
    state.has_allowed = &has_allowed_;
    state.max_bias = num_bias_;
    state.bias_ids = bias_ids.data();
    state.bias_values = bias_values.data();
    state.num_bias = &num_bias_;
    state.max_end_ids = num_end_ids_;
    state.end_ids = end_ids.data();
    state.num_end_ids = &num_end_ids_;
    state.max_report_ids = num_report_ids_;
    state.report_ids = report_ids.data();
    state.num_report_ids = &num_report_ids_;
    return state;
  }

 private:
  int32_t num_tokens_ = 0;
  uint8_t has_allowed_ = 0;
  int32_t num_bias_ = 0;
  int32_t num_end_ids_ = 0;
  int32_t num_report_ids_ = 0;
};

}  // namespace tandem::kernels
