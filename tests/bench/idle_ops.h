// A backend that computes nothing: draws are made up, everything else returns at once. It adds up
// the time that it takes itself, so that a bench can tell it from the time of its caller.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "engine/base/clock.h"
#include "kernels/ops.h"

namespace tandem::test {

class IdleOps final : public kernels::Ops {
 public:
  Nanos own_nanos() const { return own_nanos_; }

  const kernels::BackendInfo& info() const override { return info_; }
  absl::Status SupportsAttention(const kernels::AttentionShape&, kernels::KvFormat, float,
                                 int32_t) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<kernels::Buffer> Allocate(int64_t bytes, std::string_view) override {
    return kernels::Buffer(std::calloc(1, static_cast<size_t>(bytes) + 1), bytes, std::free);
  }
  absl::StatusOr<kernels::Weight> PrepareWeight(std::span<const kernels::HostMatrix> parts,
                                                std::string_view) override {
    kernels::Weight weight;
    for (const kernels::HostMatrix& part : parts) {
      weight.parts.push_back({part.dtype, weight.rows, part.rows, 0});
      weight.rows += part.rows;
      weight.cols = part.cols;
    }
    return weight;
  }
  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    const Timer timer(&own_nanos_);
    if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    const Timer timer(&own_nanos_);
    if (bytes > 0) std::memcpy(host, device, static_cast<size_t>(bytes));
  }
  int64_t Mark() override { return ++marks_; }
  absl::Status Finish(int64_t) override { return absl::OkStatus(); }
  void PrepareRows(const kernels::StepRows&, const kernels::SlotState&) override {}
  void Embed(const kernels::EmbedArgs&) override {}
  void Qkv(const kernels::QkvArgs&) override {}
  void Attention(const kernels::AttentionArgs&) override {}
  void Project(const kernels::ProjectArgs&) override {}
  void GateUp(const kernels::GateUpArgs&) override {}
  void Head(const kernels::HeadArgs&) override {}
  // Lists as long as asked for, and a draw.
  void Candidates(const kernels::CandidatesArgs& args) override {
    const Timer timer(&own_nanos_);
    for (int32_t i = 0; i < args.num_logits_rows; ++i) {
      const int32_t slot = args.rows.slot[args.logits_rows[i]];
      kernels::RowSummary& summary = args.summary[i];
      summary = {};
      summary.num_top = args.slots.params[slot].num_top;
      summary.num_perturbed = args.slots.params[slot].num_perturbed;
      summary.first_nonfinite = -1;
      summary.drawn = slot % args.slots.vocab_size;
    }
  }
  void CopyPage(const kernels::KvPool&, int32_t, int32_t, int32_t) override {}
  void SetTap(kernels::Tap*) override {}

 private:
  class Timer final {
   public:
    explicit Timer(Nanos* sum) : sum_(sum), start_(SteadyNow()) {}
    ~Timer() { *sum_ += SteadyNow() - start_; }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    Nanos* const sum_;
    const Nanos start_;
  };

  kernels::BackendInfo info_{.name = "idle", .device = "none", .numerics = "none"};
  Nanos own_nanos_ = 0;
  int64_t marks_ = 0;
};

}  // namespace tandem::test
