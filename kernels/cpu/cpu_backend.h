// The Ops of the CPU (cpu_ops.h makes one). Every call has run to its end when it returns.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/cpu/candidates.h"
#include "kernels/cpu/level.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/weights.h"
#include "kernels/ops.h"

namespace tandem::kernels::cpu {

class CpuBackend final : public Ops {
 public:
  CpuBackend(BackendInfo info, const Kernels& kernels, int32_t num_threads);

  const BackendInfo& info() const override { return info_; }
  absl::Status SupportsAttention(const AttentionShape& shape, KvFormat format, float soft_cap,
                                 int32_t window) const override;
  absl::StatusOr<Buffer> Allocate(int64_t bytes, std::string_view what) override;
  absl::StatusOr<Weight> PrepareWeight(std::span<const HostMatrix> parts,
                                       std::string_view what) override;
  void CopyToDevice(void* device, const void* host, int64_t bytes) override;
  void CopyToHost(void* host, const void* device, int64_t bytes) override;
  int64_t Mark() override { return ++marks_; }
  absl::Status Finish(int64_t mark) override;

  void PrepareRows(const StepRows& rows, const SlotState& slots) override;
  void Embed(const EmbedArgs& args) override;
  void Qkv(const QkvArgs& args) override;
  void Attention(const AttentionArgs& args) override;
  void Project(const ProjectArgs& args) override;
  void GateUp(const GateUpArgs& args) override;
  void Head(const HeadArgs& args) override;
  void Candidates(const CandidatesArgs& args) override;
  void CopyPage(const KvPool& kv, int32_t from_page, int32_t to_page, int32_t num_tokens) override;
  void CheckFinite(const CheckFiniteArgs& args) override;
  void SetTap(Tap* tap) override { tap_ = tap; }

 private:
  // Rows of one slot at consecutive positions, together in a piece of attention.
  struct RowRun {
    int32_t first_row;
    int32_t num_rows;
  };

  void Normalise(const Norm& norm, const float* x, int32_t num_rows, float* out);
  // Cuts the step's rows into runs of at most max_rows, leaving idle rows out.
  void FindRuns(const StepRows& rows, int32_t max_rows);

  void Show(std::string_view name, int32_t rows, int32_t cols, const float* values);
  // Columns [first, first + cols) of values [rows, stride].
  void ShowColumns(std::string_view name, int32_t rows, int64_t stride, int32_t first, int32_t cols,
                   const float* values);

  const BackendInfo info_;
  const Kernels& kernels_;
  ThreadPool pool_;
  Multiplier multiplier_;
  CandidateMaker candidate_maker_;
  Tap* tap_ = nullptr;
  int64_t marks_ = 0;
  Scratch normed_;
  Scratch product_;
  std::vector<RowRun> runs_;
};

}  // namespace tandem::kernels::cpu
