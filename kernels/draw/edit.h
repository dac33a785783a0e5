// The adjusted logit of an id: the raw logit after bias, penalties and clamp, in this order, every
// operation rounded once.
//
// "position" is that of the token to be decided; penalties count tokens before it: the repetition
// penalty over prompt and output, presence and frequency over the output alone, each over the last
// `window` tokens of it (0: all).
#pragma once

#include <cstdint>

#include "kernels/draw/host_device.h"
#include "kernels/draw/params.h"

namespace tandem::kernels {

// What one id's logit is edited with. The default changes nothing, not even the sign of a zero, so
// that a caller may apply edits to the ids that have some and skip the rest.
struct LogitEdit {
  float bias = 0.0f;             // finite
  int32_t repetition_count = 0;  // occurrences within each penalty's window
  int32_t presence_count = 0;
  int32_t frequency_count = 0;
};

// First token index that each penalty counts for a decision at `position`; the last one is position
// - 1.
TANDEM_HD int32_t RepetitionBegin(const DrawParams& params, int32_t position) {
  const int32_t begin = params.repetition_window > 0 ? position - params.repetition_window : 0;
  return begin > 0 ? begin : 0;
}
TANDEM_HD int32_t OutputBegin(const DrawParams& params, int32_t window, int32_t position) {
  const int32_t begin = window > 0 ? position - window : params.prompt_length;
  return begin > params.prompt_length ? begin : params.prompt_length;
}
TANDEM_HD int32_t PresenceBegin(const DrawParams& params, int32_t position) {
  return OutputBegin(params, params.presence_window, position);
}
TANDEM_HD int32_t FrequencyBegin(const DrawParams& params, int32_t position) {
  return OutputBegin(params, params.frequency_window, position);
}

TANDEM_HD float ClampLogit(float x) {
  const float below = x < kLogitLimit ? x : kLogitLimit;
  return below > -kLogitLimit ? below : -kLogitLimit;
}

// raw is finite.
TANDEM_HD float AdjustedLogit(float raw, const LogitEdit& edit, const DrawParams& params) {
  float x = raw;
  if (edit.bias != 0.0f) x = x + edit.bias;
  if (edit.repetition_count > 0) {
    x = x > 0.0f ? x / params.repetition_penalty : x * params.repetition_penalty;
  }
  if (edit.presence_count > 0) x = x - params.presence_penalty;
  if (edit.frequency_count > 0) {
    const float penalty = params.frequency_penalty * static_cast<float>(edit.frequency_count);
    x = x - penalty;
  }
  return ClampLogit(x);
}

// s: the adjusted logit relative to the row's largest, over the temperature. Always finite and <=
// 0.
TANDEM_HD float ScaledLogit(float adjusted, float row_max, const DrawParams& params) {
  const float difference = adjusted - row_max;
  return difference * params.inverse_temperature;
}

}  // namespace tandem::kernels
