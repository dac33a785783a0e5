// The device arrays of a DecodeEngine: the state of every slot, the rows and results of a step, the
// KV pools with their page tables. Uploads are in stream order, so that a step that is in flight
// keeps what it was launched with.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cache/kv_cache.h"
#include "engine/model/model.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/parameters.h"
#include "kernels/ops.h"

namespace tandem {

// State of every slot (kernels::SlotState).
class SlotArrays final {
 public:
  // defined_bits: [ceil(vocab_size / 32)] or empty. ops must outlive this. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<SlotArrays>> Make(int32_t num_slots, int32_t context_length,
                                                          int32_t vocab_size,
                                                          std::span<const uint32_t> defined_bits,
                                                          kernels::Ops& ops);
  SlotArrays(const SlotArrays&) = delete;
  SlotArrays& operator=(const SlotArrays&) = delete;

  const kernels::SlotState& state() const { return state_; }
  // Which ids are inside the row, bias, end ids, ids to report. REQUIRES validated parameters.
  void SetEdits(int32_t slot, const SamplingParameters& parameters);
  void SetParams(int32_t slot, const kernels::DrawParams& params);
  // Positions [begin, begin + tokens.size()), which are the slot's last.
  void SetTokens(int32_t slot, int32_t begin, std::span<const int32_t> tokens);

 private:
  explicit SlotArrays(kernels::Ops& ops) : ops_(ops) {}

  kernels::Ops& ops_;
  kernels::SlotState state_;
  kernels::Buffer tokens_, num_tokens_, params_;
  kernels::Buffer allowed_bits_, has_allowed_, defined_bits_;
  kernels::Buffer bias_ids_, bias_values_, num_bias_;
  kernels::Buffer end_ids_, num_end_ids_;
  kernels::Buffer report_ids_, num_report_ids_;
  std::vector<int32_t> host_bias_ids_;   // [kMaxBias]
  std::vector<float> host_bias_values_;  // [kMaxBias]
};

// The lists of some logits rows, copied to the host.
struct HostLists {
  int32_t max_top = 0;  // line lengths of this step
  int32_t max_perturbed = 0;
  bool has_raw = false;
  bool has_next = false;
  std::vector<kernels::RowSummary> summary;        // [max_rows]
  std::vector<kernels::TopEntry> top;              // [max_rows, max_top]
  std::vector<kernels::PerturbedEntry> perturbed;  // [max_rows, max_perturbed]
  std::vector<kernels::RawEntry> raw_top;          // [max_rows, kMaxRawTop]
  std::vector<kernels::RawEntry> reported;         // [max_rows, kMaxReported]
  std::vector<kernels::RawEntry> next;             // [max_rows]

  Candidates Row(int32_t row) const;
};

// The same on the device.
class DeviceLists final {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceLists>> Make(int32_t max_rows, kernels::Ops& ops);

  // Enqueues the candidate operation; max_top to has_next of `host` say what it is to give.
  // REQUIRES args with rows, logits, slots and advance set.
  void Compute(kernels::CandidatesArgs args, const HostLists& host);
  // Enqueues the copies of the first num_rows rows to host.
  void Download(int32_t num_rows, HostLists* host);

 private:
  DeviceLists(int32_t max_rows, kernels::Ops& ops) : max_rows_(max_rows), ops_(ops) {}

  int32_t max_rows_;
  kernels::Ops& ops_;
  kernels::Buffer summary_, top_, perturbed_, raw_top_, reported_, next_;
};

// What pools ask their memory for.
inline constexpr char kKvPagesName[] = "KV pages";
inline constexpr char kKvScalesName[] = "scales of KV pages";

// The KV pools of all layer groups, and their page tables.
class PoolArrays final {
 public:
  // groups: pages of each layer group. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<PoolArrays>> Make(std::span<const CacheGroup> groups,
                                                          int32_t num_slots, int32_t context_length,
                                                          kernels::KvFormat format,
                                                          const Model& model, kernels::Ops& ops);

  std::span<const kernels::KvPool> pools() const { return pools_; }
  // Bytes of one token in a layer group's pool.
  int64_t TokenBytes(int32_t group) const;
  // No page in any line of the slot.
  void ClearTable(int32_t slot);
  // Uploads what changed in the table, which then has no changes.
  void UpdateTable(int32_t slot, PageTable* table);
  void Copy(const PageCopy& copy);

 private:
  explicit PoolArrays(kernels::Ops& ops) : ops_(ops) {}

  kernels::Ops& ops_;
  std::vector<kernels::KvPool> pools_;
  std::vector<kernels::Buffer> buffers_;
  std::vector<int32_t*> tables_;     // device [num_groups][num_slots, max_pages_per_slot]
  std::vector<int32_t> empty_line_;  // [max_pages_per_slot] of -1
};

}  // namespace tandem
