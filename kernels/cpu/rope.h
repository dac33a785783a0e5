// Rotary position embedding of one head (Su et al., "RoFormer", 2021) in fp32.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace tandem::kernels::cpu {

// Turns head [>= rope.rotary_dim] in place by the angles of position. REQUIRES position in [0,
// rope.context_length).
void TurnHead(const Rope& rope, int32_t position, float* head);

}  // namespace tandem::kernels::cpu
