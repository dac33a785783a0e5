// Rotary position embedding: the tables of cosines and sines that a model is run with.
//
// Pair i of a head's rotary dimensions is turned by position * f[i]. Plain: f[i] = base^(-2 i /
// rotary_dim) (Su et al., "RoFormer", arXiv:2104.09864). Scalings for longer contexts are chosen
// once, at load, and never from the current length:
//   linear   f / factor                                        (Chen et al., arXiv:2306.15595)
//   llama3   wavelengths above original_context / low_freq_factor are divided by factor, those
//   below
//            original_context / high_freq_factor kept, between them interpolated     (Llama 3.1's
//            reference code)
//   yarn     the same idea with a ramp over dimensions and cos, sin times 0.1 ln(factor) + 1
//                                                              (Peng et al., arXiv:2309.00071,
//                                                              section 3.2 to 3.4)
// Then each f[i] is divided by freq_factors[i] where the checkpoint has them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/checkpoint/model_config.h"

namespace tandem {

struct RopeFrequencies {
  std::vector<double> inverse;    // [rotary_dim / 2] radians per position
  double attention_factor = 1.0;  // multiplies cos and sin
};

// REQUIRES a configuration as Checkpoint gives it: rotary_dim even, factor > 0, freq_factors empty
// or [rotary_dim / 2].
RopeFrequencies ComputeRopeFrequencies(const ModelConfig& config);

// Lines [first_position, first_position + num_positions) of the tables: cos and sin [num_positions,
// rotary_dim / 2], computed in double, stored fp32.
void FillRopeTables(const RopeFrequencies& frequencies, int32_t first_position,
                    int32_t num_positions, float* cos, float* sin);

}  // namespace tandem
