// The operations of a forward pass, cut at the seams where backends fuse. This file is the whole contract of a backend.
//
// Words: a row is one token's line in a step; rows of one slot stand next to each other with ascending positions. n is the
// number of rows of a step (host scalar, the size of the launch), counting idle rows (token kIdleToken), which read and
// write nothing outside their own line of an activation. Every pointer in an argument struct is device memory unless its
// name starts with host_. Activations ("act") have the backend's activation dtype: fp32 on the CPU, bf16 on CUDA; the
// residual stream and logits are fp32 everywhere.
//
// The bits contract: what an operation writes for a row depends on that row's token history alone: not on n, neighbours,
// the split of a prompt into steps, page placement, threads or the clock. Along K and along the KV sequence every order of
// summation is a constant of the backend. Calls are enqueued in order; host memory is read only through CopyToHost.
//
// Threads: an Ops is used by one thread at a time. Calls do not fail for reasons of data; a broken device is reported by
// Finish, once. REQUIRES lines are checked and abort.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/check.h"
#include "kernels/check_finite.h"
#include "kernels/device.h"
#include "kernels/draw/candidates.h"
#include "kernels/draw/params.h"
#include "kernels/tensor.h"

namespace tandem::kernels {

// ---- the running batch, as device arrays -----------------------------------------------------------------------------

// State of every slot, advanced on the device so that a row that continues needs nothing from the host.
struct SlotState {
  int32_t num_slots = 0;
  int32_t context_length = 0;
  int32_t vocab_size = 0;
  int32_t* tokens = nullptr;        // [num_slots, context_length] token at each position: confirmed, drawn, draft
  int32_t* num_tokens = nullptr;    // [num_slots] tokens held; a draw appends one
  DrawParams* params = nullptr;     // [num_slots]
  // Edits of the row, per slot; a null base pointer means that no slot has any.
  const uint32_t* allowed_bits = nullptr;   // [num_slots, ceil(vocab_size / 32)] 1 = inside the row
  const uint8_t* has_allowed = nullptr;     // [num_slots] 0: the slot's allowed_bits line is not read, every id is allowed
  const uint32_t* defined_bits = nullptr;   // [ceil(vocab_size / 32)] ids that the tokenizer defines; null: all
  int32_t max_bias = 0;
  const int32_t* bias_ids = nullptr;        // [num_slots, max_bias]
  const float* bias_values = nullptr;       // [num_slots, max_bias]
  const int32_t* num_bias = nullptr;        // [num_slots]
  int32_t max_end_ids = 0;
  const int32_t* end_ids = nullptr;         // [num_slots, max_end_ids] outside the row below min_tokens
  const int32_t* num_end_ids = nullptr;     // [num_slots]
  int32_t max_report_ids = 0;
  const int32_t* report_ids = nullptr;      // [num_slots, max_report_ids]
  const int32_t* num_report_ids = nullptr;  // [num_slots]
};

// The rows of one step.
struct StepRows {
  int32_t num_rows = 0;
  const int32_t* slot = nullptr;      // [n]; -1 for padding: an idle row, row_position -1
  const int32_t* position = nullptr;  // [n] index of the row's token in its sequence; -1 for a row that continues
  int32_t* token = nullptr;           // [n] out of PrepareRows
  int32_t* row_position = nullptr;    // [n] out of PrepareRows
};

// ---- parameters of the layers ----------------------------------------------------------------------------------------

// y = x / sqrt(mean(x^2) + epsilon), in fp32. kScaleThenRound: act(y * (offset + weight)); kRoundThenScale:
// act(act(y) * (offset + weight)), the order of Hugging Face's Llama.
enum class NormOrder : uint8_t { kScaleThenRound, kRoundThenScale };
struct Norm {
  const float* weight = nullptr;  // [width]
  int32_t width = 0;
  float epsilon = 0.0f;  // > 0, from the checkpoint
  float offset = 0.0f;   // 1 for checkpoints that store weight - 1
  NormOrder order = NormOrder::kRoundThenScale;
};

// Pairs that RoPE turns: kInterleaved (2i, 2i + 1), GGUF's order for llama; kHalves (i, i + rotary_dim / 2), Hugging Face's.
enum class RopePairs : uint8_t { kInterleaved, kHalves };
struct Rope {
  const float* cos = nullptr;  // [context_length, rotary_dim / 2], computed in double, stored fp32
  const float* sin = nullptr;
  int32_t context_length = 0;
  int32_t rotary_dim = 0;  // even, <= head_dim; dimensions above it pass unchanged
  RopePairs pairs = RopePairs::kHalves;
};

enum class GateKind : uint8_t { kSilu, kGeluTanh, kGeluErf };

struct AttentionShape {
  int32_t num_heads = 0;     // a multiple of num_kv_heads, num_heads / num_kv_heads in [1, 64]
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;      // 64, 80, 96, 128 or 256 on every backend; the CPU takes any multiple of 8
};

// ---- the seams -------------------------------------------------------------------------------------------------------

struct EmbedArgs {
  StepRows rows;
  const Weight* table = nullptr;  // [vocab_size, hidden_size]
  float scale = 1.0f;             // each value is multiplied once, in fp32
  float* residual = nullptr;      // out [n, hidden_size]
};

// norm -> q, k, v (+ bias) -> q/k norm -> RoPE -> q out, k and v into the cache at the row's position.
struct QkvArgs {
  StepRows rows;
  const float* residual = nullptr;  // [n, hidden_size]
  Norm norm;
  const Weight* qkv = nullptr;      // [(num_heads + 2 num_kv_heads) * head_dim, hidden_size], parts q, k, v
  const float* bias = nullptr;      // [rows of qkv] or null
  const Norm* q_norm = nullptr;     // width head_dim, or null
  const Norm* k_norm = nullptr;
  Rope rope;
  AttentionShape shape;
  KvPool kv;
  int32_t layer = 0;                // within the pool
  void* q = nullptr;                // out act [n, num_heads * head_dim]
};

// softmax(cap(scale * q k)) v over the positions of the row's slot that the row may see: (position - window, position], or
// all up to position where window is 0. Reads its own step's k and v back from the cache. V past the length is never read.
struct AttentionArgs {
  StepRows rows;
  const void* q = nullptr;  // act [n, num_heads * head_dim]
  AttentionShape shape;
  KvPool kv;
  int32_t layer = 0;
  float scale = 0.0f;       // usually 1 / sqrt(head_dim)
  float soft_cap = 0.0f;    // 0: none; else cap * tanh(x / cap) after the scale
  int32_t window = 0;       // 0: none
  void* out = nullptr;      // act [n, num_heads * head_dim]
};

// residual += post_norm(x W^T + bias): the output projection and the down projection.
struct ProjectArgs {
  StepRows rows;
  const void* x = nullptr;          // act [n, weight->cols]
  const Weight* weight = nullptr;   // [hidden_size, cols]
  const float* bias = nullptr;      // [hidden_size] or null
  const Norm* post_norm = nullptr;  // or null; result in fp32, then the one add
  float* residual = nullptr;        // in and out [n, hidden_size]
};

// norm -> gate, up (+ bias) -> kind(gate) * up.
struct GateUpArgs {
  StepRows rows;
  const float* residual = nullptr;  // [n, hidden_size]
  Norm norm;
  const Weight* gate_up = nullptr;  // [2 * ffn_size, hidden_size], parts gate, up
  const float* bias = nullptr;      // [2 * ffn_size] or null
  GateKind kind = GateKind::kSilu;
  void* out = nullptr;              // act [n, ffn_size]
};

// Rows of the residual stream -> final norm -> output product -> cap -> logits.
struct HeadArgs {
  StepRows rows;
  const float* residual = nullptr;      // [n, hidden_size]
  int32_t num_logits_rows = 0;
  const int32_t* logits_rows = nullptr; // [num_logits_rows] indices into the step's rows
  Norm norm;
  const Weight* output = nullptr;       // [vocab_size, hidden_size]
  const float* bias = nullptr;          // [vocab_size] or null
  float logit_scale = 1.0f;
  float soft_cap = 0.0f;                // 0: none
  float* logits = nullptr;              // out fp32 [num_logits_rows, vocab_size]
};

// The lists of each logits row (draw/candidates.h), and the draw. For the row of slot s at position p the decision is for
// position p + 1; penalties count the slot's tokens [0, p + 1), all of them as they stood before the call.
//
// Drafts: logits rows of one slot stand next to each other, at consecutive positions, and the token of each but the first is
// a draft of the decision of the one before it. Every row is computed as if all drafts before it were drawn. Where advance
// is set, one draw of each slot is appended: that of its first row whose draw is not the token of the slot's next row, or of
// its last row. With that row at p: slots.tokens[s][p + 1] = drawn, slots.num_tokens[s] = p + 2; the drafts before it are
// thereby taken, and what the rows behind it give is of no use to anybody. Where its lists do not decide, kIdleToken is
// stored there, and a row that continues from it is idle. At the context length nothing is stored.
struct CandidatesArgs {
  StepRows rows;
  int32_t num_logits_rows = 0;
  const int32_t* logits_rows = nullptr;  // [num_logits_rows]
  const float* logits = nullptr;         // [num_logits_rows, vocab_size]
  SlotState slots;
  bool advance = false;
  RowSummary* summary = nullptr;         // out [num_logits_rows]
  TopEntry* top = nullptr;               // out [num_logits_rows, max_top]
  PerturbedEntry* perturbed = nullptr;   // out [num_logits_rows, max_perturbed]
  RawEntry* raw_top = nullptr;           // out [num_logits_rows, kMaxRawTop], or null where no row wants it
  RawEntry* reported = nullptr;          // out [num_logits_rows, kMaxReported], or null
  int32_t max_top = 0;                   // >= num_top of every row, <= kMaxTop
  int32_t max_perturbed = 0;             // >= num_perturbed of every row, <= kMaxPerturbed
  // Out [num_logits_rows], or null: of the token that the slot holds behind the row, tokens[s][p + 1]. Written where the row has
  // a raw part. REQUIRES that the slot holds one.
  RawEntry* next = nullptr;
};

// Tests lines of an output for values that are NaN or infinite (check_finite.h). Idle rows are left out. A row whose line of
// `found` already says something keeps it.
struct CheckFiniteArgs {
  StepRows rows;
  CheckedOutput output = CheckedOutput::kNone;
  int32_t layer = 0;                   // to be reported
  const void* values = nullptr;        // [num_lines, width] fp32, or act where is_act; unless kv is given
  bool is_act = false;
  const KvPool* kv = nullptr;          // host struct: what the step wrote there, width 2 * num_kv_heads * head_dim
  int32_t kv_layer = 0;                // within the pool
  int32_t width = 0;
  int32_t num_lines = 0;
  const int32_t* line_rows = nullptr;  // [num_lines] the row of each line; null: line i is row i
  bool first = false;                  // of a step: clears found [num_rows] before
  NonFinite* found = nullptr;          // in and out [num_rows]
};

// Sees named sub-results of a seam ("attn_norm", "q", "k", "v", "q_rope", ...; the list stands in reference/reference_ops.h).
class Tap {
 public:
  virtual ~Tap() = default;
  // values: fp32 [rows, cols], valid during the call.
  virtual void OnTensor(std::string_view name, int32_t rows, int32_t cols, const float* values) = 0;
};

struct BackendInfo {
  std::string name;       // "reference", "cpu", "cuda"
  std::string device;     // "AVX-512 (Intel Xeon ...), 2 threads", "NVIDIA H200"
  std::string numerics;   // what the bits depend on beside model and KV format: kernel version, SIMD level, activation dtype
  int32_t act_bytes = 4;  // bytes of one activation element
  KvFormat default_kv = KvFormat::kF32;
  bool asynchronous = false;  // launch-side calls return before the work is done; two steps in flight then pay
  bool records = false;       // BeginGraph records: steps of equal shape are cheaper
};

// Memory of a device, in bytes; total 0: the backend does not say.
struct MemoryInfo {
  int64_t free = 0;
  int64_t total = 0;
};

// The largest step, for what a backend takes for itself.
struct WorkspaceShape {
  int32_t rows = 0;
  int32_t logits_rows = 0;
  int32_t widest = 0;  // rows or columns of the widest matrix but the output's
  int32_t vocab_size = 0;
  int32_t context_length = 0;
  AttentionShape attention;
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual const BackendInfo& info() const = 0;

  // OK, or UNIMPLEMENTED naming what this backend lacks. Asked once for every layer before a model is accepted.
  virtual absl::Status SupportsAttention(const AttentionShape& shape, KvFormat format, float soft_cap,
                                         int32_t window) const = 0;

  // Zeroed device memory, aligned to 256 bytes. RESOURCE_EXHAUSTED with `what`, what was asked and what there is.
  virtual absl::StatusOr<Buffer> Allocate(int64_t bytes, std::string_view what) = 0;
  // Stacks parts along rows in the form that the products read. REQUIRES equal cols and cols % block_elements == 0.
  // UNIMPLEMENTED names a dtype that the backend does not multiply. The host data is not needed afterwards.
  virtual absl::StatusOr<Weight> PrepareWeight(std::span<const HostMatrix> parts, std::string_view what) = 0;
  // Known before anything is taken: bytes of a matrix in the form that the products read; of what the backend takes beside
  // what it is asked for, at most, for steps of this shape; of the device's memory.
  virtual int64_t WeightBytes(const HostMatrix& matrix) const { return StoredBytes(matrix); }
  virtual int64_t WorkspaceBytes(const WorkspaceShape& /*shape*/) const { return 0; }
  virtual MemoryInfo Memory() const { return {}; }
  // In stream order. The source is read before the call returns / the destination is valid after the next Finish.
  virtual void CopyToDevice(void* device, const void* host, int64_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, int64_t bytes) = 0;
  // Marks the end of what was enqueued; Finish waits for it. Two marks may be open. INTERNAL: the device is lost, and every
  // later call returns the same.
  virtual int64_t Mark() = 0;
  virtual absl::Status Finish(int64_t mark) = 0;

  // token[i], row_position[i] of each row: position[i] >= 0 takes slots.tokens[slot][position]; position[i] == -1 continues:
  // position num_tokens[slot] - 1 and the token there (kIdleToken if the draw before it was not decided).
  virtual void PrepareRows(const StepRows& rows, const SlotState& slots) = 0;
  virtual void Embed(const EmbedArgs& args) = 0;
  virtual void Qkv(const QkvArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  virtual void Project(const ProjectArgs& args) = 0;
  virtual void GateUp(const GateUpArgs& args) = 0;
  virtual void Head(const HeadArgs& args) = 0;
  virtual void Candidates(const CandidatesArgs& args) = 0;
  // Copies tokens [0, num_tokens) of a page, every layer, K and V and scales, for forks and rewinds. 0 < num_tokens <= 64.
  virtual void CopyPage(const KvPool& kv, int32_t from_page, int32_t to_page, int32_t num_tokens) = 0;

  // For the checked mode. Reads alone: no bits change. Backends that are not to be checked may leave it out.
  virtual void CheckFinite(const CheckFiniteArgs& /*args*/) { KERNELS_REQUIRE(false, "%s", "no checked mode"); }

  // Work that is the same each time for a key: same calls, same pointers and sizes; what differs stands in device memory.
  // True: the caller enqueues it, then calls EndGraph. False: what was recorded for the key was enqueued, and the caller
  // enqueues nothing. Between the two no copy, mark or allocation. Backends that record say so in info().records.
  virtual bool BeginGraph(uint64_t /*key*/) { return true; }
  virtual void EndGraph() {}
  // Forgets all that was recorded: memory that it names goes.
  virtual void DropGraphs() {}

  // Null takes it off. Backends that fuse call it with the results that exist.
  virtual void SetTap(Tap* tap) = 0;
};

}  // namespace tandem::kernels
