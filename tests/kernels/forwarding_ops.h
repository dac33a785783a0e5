// An Ops that hands every call to another one: the base of test doubles that change one operation.
#pragma once

#include <memory>
#include <utility>

#include "kernels/ops.h"

namespace tandem::kernels {

class ForwardingOps : public Ops {
 public:
  explicit ForwardingOps(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}

  const BackendInfo& info() const override { return ops_->info(); }
  absl::Status SupportsAttention(const AttentionShape& shape, KvFormat format, float soft_cap,
                                 int32_t window) const override {
    return ops_->SupportsAttention(shape, format, soft_cap, window);
  }
  absl::StatusOr<Buffer> Allocate(int64_t bytes, std::string_view what) override {
    return ops_->Allocate(bytes, what);
  }
  absl::StatusOr<Weight> PrepareWeight(std::span<const HostMatrix> parts,
                                       std::string_view what) override {
    return ops_->PrepareWeight(parts, what);
  }
  int64_t WeightBytes(const HostMatrix& matrix) const override { return ops_->WeightBytes(matrix); }
  int64_t WorkspaceBytes(const WorkspaceShape& shape) const override {
    return ops_->WorkspaceBytes(shape);
  }
  MemoryInfo Memory() const override { return ops_->Memory(); }
  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    ops_->CopyToDevice(device, host, bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    ops_->CopyToHost(host, device, bytes);
  }
  int64_t Mark() override { return ops_->Mark(); }
  absl::Status Finish(int64_t mark) override { return ops_->Finish(mark); }
  void PrepareRows(const StepRows& rows, const SlotState& slots) override {
    ops_->PrepareRows(rows, slots);
  }
  void Embed(const EmbedArgs& args) override { ops_->Embed(args); }
  void Qkv(const QkvArgs& args) override { ops_->Qkv(args); }
  void Attention(const AttentionArgs& args) override { ops_->Attention(args); }
  void Project(const ProjectArgs& args) override { ops_->Project(args); }
  void GateUp(const GateUpArgs& args) override { ops_->GateUp(args); }
  void Head(const HeadArgs& args) override { ops_->Head(args); }
  void Candidates(const CandidatesArgs& args) override { ops_->Candidates(args); }
  void CopyPage(const KvPool& kv, int32_t from_page, int32_t to_page, int32_t num_tokens) override {
    ops_->CopyPage(kv, from_page, to_page, num_tokens);
  }
  void CheckFinite(const CheckFiniteArgs& args) override { ops_->CheckFinite(args); }
  bool BeginGraph(uint64_t key) override { return ops_->BeginGraph(key); }
  void EndGraph() override { ops_->EndGraph(); }
  void DropGraphs() override { ops_->DropGraphs(); }
  void SetTap(Tap* tap) override { ops_->SetTap(tap); }

 private:
  const std::unique_ptr<Ops> ops_;
};

}  // namespace tandem::kernels
