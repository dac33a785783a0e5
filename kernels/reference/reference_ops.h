// Every operation as plain loops: the oracle of all kernel tests. Sums run in fp64; roundings stand
// where the contract for the activation dtype has them, so that another backend's result can be
// compared within that dtype's tolerance:
//   kF32    none but those of fp32 storage.
//   kBF16   weights to bf16 when prepared; normed rows, q, k, v, gate, up, the gated value and the
//           output of attention to bf16; q/k norms and post norms stay fp32; probabilities,
//           relative to the row's largest, to bf16 for the product with V and not for their sum.
//
// Sub-results that a Tap sees, per seam, each [rows of the step, width], idle rows zero:
//   Embed       embed
//   Qkv         attn_norm, q, k, v, q_norm, k_norm, q_rope, k_rope
//               (q_norm, k_norm where the model has them; k_rope before the cache's rounding)
//   Attention   attn
//   Project     project, project_norm, residual      (project_norm where there is a post norm)
//   GateUp      ffn_norm, gate, up, gated
//   Head        final_norm, logits                   (a line per logits row)
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace tandem::kernels {

enum class ActDType : uint8_t { kF32, kBF16 };

// Device memory is host memory. Single-threaded, slow, takes every shape and KV format.
std::unique_ptr<Ops> MakeReferenceOps(ActDType act);

}  // namespace tandem::kernels
