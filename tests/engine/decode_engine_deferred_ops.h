// A backend that is as late as a device may be: what is enqueued runs only when somebody waits for
// a mark behind it, in order. Uploads are read when they are enqueued, downloads written when they
// run. It counts uploads.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops.h"

namespace tandem::test {

class DeferredOps final : public kernels::Ops {
 public:
  explicit DeferredOps(std::unique_ptr<kernels::Ops> base) : base_(std::move(base)) {}

  int64_t uploaded_bytes() const { return uploaded_bytes_; }
  // From now on Finish says that the device is lost.
  void Break() { is_broken_ = true; }

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
    uploaded_bytes_ += bytes;
    const char* begin = static_cast<const char*>(host);
    Later([this, device, copy = std::vector<char>(begin, begin + bytes)] {
      base_->CopyToDevice(device, copy.data(), static_cast<int64_t>(copy.size()));
    });
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    Later([=, this] { base_->CopyToHost(host, device, bytes); });
  }
  int64_t Mark() override { return first_ + static_cast<int64_t>(queue_.size()); }
  absl::Status Finish(int64_t mark) override {
    if (is_broken_) return absl::InternalError("the device is lost");
    while (first_ < mark) {
      queue_.front()();
      queue_.pop_front();
      ++first_;
    }
    return base_->Finish(base_->Mark());
  }
  void PrepareRows(const kernels::StepRows& rows, const kernels::SlotState& slots) override {
    Later([=, this] { base_->PrepareRows(rows, slots); });
  }
  void Embed(const kernels::EmbedArgs& args) override {
    Later([=, this] { base_->Embed(args); });
  }
  void Qkv(const kernels::QkvArgs& args) override {
    Later([=, this] { base_->Qkv(args); });
  }
  void Attention(const kernels::AttentionArgs& args) override {
    Later([=, this] { base_->Attention(args); });
  }
  void Project(const kernels::ProjectArgs& args) override {
    Later([=, this] { base_->Project(args); });
  }
  void GateUp(const kernels::GateUpArgs& args) override {
    Later([=, this] { base_->GateUp(args); });
  }
  void Head(const kernels::HeadArgs& args) override {
    Later([=, this] { base_->Head(args); });
  }
  void Candidates(const kernels::CandidatesArgs& args) override {
    Later([=, this] { base_->Candidates(args); });
  }
  void CopyPage(const kernels::KvPool& kv, int32_t from_page, int32_t to_page,
                int32_t num_tokens) override {
    Later([=, this] { base_->CopyPage(kv, from_page, to_page, num_tokens); });
  }
  void CheckFinite(const kernels::CheckFiniteArgs& args) override {
    // The pool's struct may be gone by then.
    Later([this, args = kernels::CheckFiniteArgs(args),
           kv = args.kv != nullptr ? *args.kv : kernels::KvPool{}]() mutable {
      if (args.kv != nullptr) args.kv = &kv;
      base_->CheckFinite(args);
    });
  }
  void SetTap(kernels::Tap* tap) override { base_->SetTap(tap); }

 private:
  void Later(std::function<void()> work) { queue_.push_back(std::move(work)); }

  std::unique_ptr<kernels::Ops> base_;
  std::deque<std::function<void()>> queue_;
  int64_t first_ = 0;  // number of the work at the front
  int64_t uploaded_bytes_ = 0;
  bool is_broken_ = false;
};

}  // namespace tandem::test
