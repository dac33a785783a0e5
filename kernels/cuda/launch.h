// What the files of this folder offer each other: one function for each piece of work on the GPU,
// all in the order of a stream. Host code; the kernels stand in the .cu files.
//
// Every pointer is device memory unless its name starts with host_. Shapes stand at each. Nothing
// here allocates, waits, or reads device memory on the host. Idle rows (token kIdleToken) write
// nothing outside their own line of an activation, and their lines are finite.
//
// Roundings are those of reference_ops.h for bf16: a normed row, q, k, v, gate, up, the gated value
// and the output of attention are bf16; everything else is fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/ops.h"

namespace tandem::kernels::cuda {

// ---- rows.cu
// -------------------------------------------------------------------------------------

// Ops::PrepareRows.
void LaunchPrepareRows(const StepRows& rows, const SlotState& slots, cudaStream_t stream);
// residual[i] = table[token[i]] * scale; idle lines become 0.
void LaunchEmbed(const StepRows& rows, const __nv_bfloat16* table /* [vocab, width] */,
                 int32_t width, float scale, float* residual /* [n, width] */, cudaStream_t stream);
// out[i] = norm(x[index ? index[i] : i]), rounded to bf16 as norm.order says. The sum of squares
// has one order for a width, whatever n is.
void LaunchNorm(const float* x /* [.., width] */, const int32_t* index /* [n] or null */, int32_t n,
                const Norm& norm, __nv_bfloat16* out /* [n, width] */, cudaStream_t stream);
// residual[i] += norm(x[i]), all fp32, one add.
void LaunchPostNormAdd(const float* x /* [n, width] */, int32_t n, const Norm& norm,
                       float* residual /* [n, width] */, cudaStream_t stream);
// out = act(kind(gate) * up), fp32 inside, one rounding. gate_up: [n, 2 * width], parts gate, up.
void LaunchGate(const __nv_bfloat16* gate_up, int32_t n, int32_t width, GateKind kind,
                __nv_bfloat16* out /* [n, width] */, cudaStream_t stream);
// logits *= scale, then cap * tanh(x / cap) where cap > 0; in place.
void LaunchScaleCap(float* logits, int64_t count, float scale, float cap, cudaStream_t stream);

// ---- rope.cu
// -------------------------------------------------------------------------------------

// From the rounded product with its bias: q and k norm (where given, fp32 on the rounded value),
// RoPE in fp32, q rounded to bf16, k and v into the cache in its format (8-bit: one scale for each
// token and head, as reference_ops quantises) at the row's position. Idle rows write zeros to q
// alone.
struct RopeArgs {
  StepRows rows;
  const __nv_bfloat16* qkv = nullptr;  // [n, (num_heads + 2 num_kv_heads) * head_dim]
  const Norm* q_norm = nullptr;        // host struct, or null
  const Norm* k_norm = nullptr;
  Rope rope;
  AttentionShape shape;
  KvPool kv;
  int32_t layer = 0;
  __nv_bfloat16* q = nullptr;  // out [n, num_heads * head_dim]
};
void LaunchRope(const RopeArgs& args, cudaStream_t stream);
// Ops::CopyPage.
void LaunchCopyPage(const KvPool& kv, int32_t from_page, int32_t to_page, int32_t num_tokens,
                    cudaStream_t stream);

// ---- attention.cu
// --------------------------------------------------------------------------------

// Bytes of scratch for a step of `rows` rows over contexts of `context_length` tokens.
int64_t AttentionScratchBytes(const AttentionShape& shape, int32_t rows, int32_t context_length);
// Ops::Attention. scratch: at least AttentionScratchBytes(shape, rows.num_rows, context_length).
void LaunchAttention(const AttentionArgs& args, int32_t context_length, void* scratch,
                     cudaStream_t stream);
// OK, or UNIMPLEMENTED with what is not supported.
absl::Status AttentionSupported(const AttentionShape& shape, KvFormat format, float soft_cap,
                                int32_t window);

// ---- candidates.cu
// -------------------------------------------------------------------------------

// Bytes of scratch for logits_rows rows of vocab_size.
int64_t CandidatesScratchBytes(int32_t logits_rows, int32_t vocab_size);
// Ops::Candidates, the draw included.
void LaunchCandidates(const CandidatesArgs& args, void* scratch, cudaStream_t stream);

// ---- weights.cu
// ----------------------------------------------------------------------------------

// rows x cols of a matrix as a checkpoint stores it (device copy of HostMatrix::data) to bf16, each
// value rounded once.
void LaunchDequantize(const void* data, DType dtype, int32_t rows, int32_t cols,
                      __nv_bfloat16* out /* [rows, cols] */, cudaStream_t stream);

// Values [0, count) of a matrix that is drawn (random_weight.h).
void LaunchRandomWeight(uint64_t seed, float deviation, int64_t count,
                        __nv_bfloat16* out /* [count] */, cudaStream_t stream);

// ---- check_finite.cu
// -----------------------------------------------------------------------------

// Ops::CheckFinite; activations are bf16.
void LaunchCheckFinite(const CheckFiniteArgs& args, cudaStream_t stream);

}  // namespace tandem::kernels::cuda
