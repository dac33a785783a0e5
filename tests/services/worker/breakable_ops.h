// A backend that a test can stop, break or make compute wrongly, from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/ops.h"

namespace tandem::test {

// The switches, which outlive the backend that looks at them.
class OpsSwitches final {
 public:
  // Finish waits until Release.
  void Hold() { Set(&held_, true); }
  void Release() { Set(&held_, false); }
  // Finish says that the device is lost.
  void Break() { Set(&broken_, true); }
  // From now on a logit is slightly off in steps of several rows: the batch changes the result.
  void Corrupt() { Set(&corrupt_, true); }

  // True once somebody waits in Finish.
  bool WaitUntilHeld() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return waiting_; });
  }

 private:
  friend class BreakableOps;
  void Set(bool* flag, bool value) {
    std::lock_guard lock(mutex_);
    *flag = value;
    changed_.notify_all();
  }
  absl::Status Pass() {
    std::unique_lock lock(mutex_);
    waiting_ = held_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    waiting_ = false;
    return broken_ ? absl::InternalError("the device is lost") : absl::OkStatus();
  }
  bool corrupt() {
    std::lock_guard lock(mutex_);
    return corrupt_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool held_ = false;
  bool waiting_ = false;
  bool broken_ = false;
  bool corrupt_ = false;
};

class BreakableOps final : public kernels::Ops {
 public:
  BreakableOps(std::unique_ptr<kernels::Ops> base, std::shared_ptr<OpsSwitches> switches)
      : base_(std::move(base)), switches_(std::move(switches)) {}

  const kernels::BackendInfo& info() const override { return base_->info(); }
  absl::Status SupportsAttention(const kernels::AttentionShape& shape, kernels::KvFormat format,
                                 float soft_cap, int32_t window) const override {
    return base_->SupportsAttention(shape, format, soft_cap, window);
  }
  absl::StatusOr<kernels::Buffer> Allocate(int64_t bytes, std::string_view what) override {
    return base_->Allocate(bytes, what);
  }
  absl::StatusOr<kernels::Weight> PrepareWeight(std::span<const kernels::HostMatrix> parts,
                                                std::string_view what) override {
    return base_->PrepareWeight(parts, what);
  }
  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    base_->CopyToDevice(device, host, bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    base_->CopyToHost(host, device, bytes);
  }
  int64_t Mark() override { return base_->Mark(); }
  absl::Status Finish(int64_t mark) override {
    const absl::Status passed = switches_->Pass();
    return passed.ok() ? base_->Finish(mark) : passed;
  }
  void PrepareRows(const kernels::StepRows& rows, const kernels::SlotState& slots) override {
    base_->PrepareRows(rows, slots);
  }
  void Embed(const kernels::EmbedArgs& args) override { base_->Embed(args); }
  void Qkv(const kernels::QkvArgs& args) override { base_->Qkv(args); }
  void Attention(const kernels::AttentionArgs& args) override { base_->Attention(args); }
  void Project(const kernels::ProjectArgs& args) override { base_->Project(args); }
  void GateUp(const kernels::GateUpArgs& args) override { base_->GateUp(args); }
  void Head(const kernels::HeadArgs& args) override {
    base_->Head(args);
    // Device memory is host memory on the backends that tests wrap.
    if (switches_->corrupt() && args.num_logits_rows > 0 && args.rows.num_rows > 1) {
      *args.logits += 1e-3f;
    }
  }
  void Candidates(const kernels::CandidatesArgs& args) override { base_->Candidates(args); }
  void CopyPage(const kernels::KvPool& kv, int32_t from_page, int32_t to_page,
                int32_t num_tokens) override {
    base_->CopyPage(kv, from_page, to_page, num_tokens);
  }
  void CheckFinite(const kernels::CheckFiniteArgs& args) override { base_->CheckFinite(args); }
  void SetTap(kernels::Tap* tap) override { base_->SetTap(tap); }

 private:
  const std::unique_ptr<kernels::Ops> base_;
  const std::shared_ptr<OpsSwitches> switches_;
};

}  // namespace tandem::test
