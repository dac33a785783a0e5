// The operations of ops.h as sequences of this folder's launches on one stream.
//
// Scratch grows to the largest step that was seen and stays; a worker's self-test runs its largest
// step before it serves, so that no later step allocates.
//
// Graphs: the first time that a key comes its work is enqueued as it is, which loads kernels and
// grows scratch; the second time it is captured, instantiated and launched; from then on launched.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/staging.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

class CudaBackend final : public Ops {
 public:
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Make(const CudaOptions& options);
  ~CudaBackend() override;

  const BackendInfo& info() const override { return info_; }
  absl::Status SupportsAttention(const AttentionShape& shape, KvFormat format, float soft_cap,
                                 int32_t window) const override;
  absl::StatusOr<Buffer> Allocate(int64_t bytes, std::string_view what) override;
  absl::StatusOr<Weight> PrepareWeight(std::span<const HostMatrix> parts,
                                       std::string_view what) override;
  int64_t WeightBytes(const HostMatrix& matrix) const override;
  int64_t WorkspaceBytes(const WorkspaceShape& shape) const override;
  MemoryInfo Memory() const override;
  void CopyToDevice(void* device, const void* host, int64_t bytes) override;
  void CopyToHost(void* host, const void* device, int64_t bytes) override;
  int64_t Mark() override;
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
  bool BeginGraph(uint64_t key) override;
  void EndGraph() override;
  void DropGraphs() override;
  void SetTap(Tap* tap) override { tap_ = tap; }

 private:
  enum Scratch : int { kNormed, kWide, kSums, kAttention, kCandidates, kNumScratch };

  CudaBackend() = default;
  void* Take(Scratch which, int64_t bytes);
  template <typename T>
  T* Take(Scratch which, int64_t count) {
    return static_cast<T*>(Take(which, count * static_cast<int64_t>(sizeof(T))));
  }
  void Show(std::string_view name, int32_t rows, int32_t cols, const float* values);
  void Show(std::string_view name, int32_t rows, int32_t cols, const __nv_bfloat16* values);

  BackendInfo info_;
  int32_t max_rows_ = 0;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Products> products_;
  Buffer scratch_[kNumScratch];
  int32_t context_length_ = 0;  // of the slots of the latest PrepareRows
  Tap* tap_ = nullptr;

  struct Graph {
    bool was_seen = false;
    cudaGraphExec_t exec = nullptr;
  };
  std::unordered_map<uint64_t, Graph> graphs_;
  Graph* captured_ = nullptr;  // between BeginGraph and EndGraph, where it captures
};

}  // namespace tandem::kernels::cuda
