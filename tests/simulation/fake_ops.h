// A backend whose arithmetic is 64-bit hashes (fake_arithmetic.h), each stored in the first 8 bytes
// of a line, read and written through the real page tables and slot arrays. It runs every call at
// once, in order, as a stream would; only CopyToHost keeps its result back until Finish.
//
// It also checks the callers of kernels/ops.h: a breach of the contract, a page written without
// exactly one owner, a page of a step that has no owner when the step is finished, an entry that is
// read and was never written. The first violation is kept as text.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace tandem::test {

class FakeOps final : public kernels::Ops {
 public:
  // How many owners a page has now. Null: not checked.
  using Owners = std::function<int32_t(int32_t group, int32_t page)>;

  FakeOps();
  void SetOwners(Owners owners) { owners_ = std::move(owners); }
  // Empty: none so far.
  const std::string& violation() const { return violation_; }

  // What was enqueued between two marks.
  struct Step {
    int64_t mark = 0;
    int32_t num_rows = 0;
    int32_t num_logits_rows = 0;     // those of prompts aside
    std::vector<uint64_t> sessions;  // SessionKey of the slots that have rows
    // Pages that rows of a slot read or wrote, and where the slot's table has them.
    struct Touched {
      const int32_t* table_entry = nullptr;
      int32_t group = 0;
      int32_t page = 0;
    };
    std::vector<Touched> touched;
  };
  static uint64_t SessionKey(uint64_t seed, uint32_t choice);
  // Marked and not finished, oldest first.
  const std::deque<Step>& open_steps() const { return open_; }

  const kernels::BackendInfo& info() const override { return info_; }
  absl::Status SupportsAttention(const kernels::AttentionShape& shape, kernels::KvFormat format,
                                 float soft_cap, int32_t window) const override;
  absl::StatusOr<kernels::Buffer> Allocate(int64_t bytes, std::string_view what) override;
  absl::StatusOr<kernels::Weight> PrepareWeight(std::span<const kernels::HostMatrix> parts,
                                                std::string_view what) override;
  void CopyToDevice(void* device, const void* host, int64_t bytes) override;
  void CopyToHost(void* host, const void* device, int64_t bytes) override;
  int64_t Mark() override;
  absl::Status Finish(int64_t mark) override;
  void PrepareRows(const kernels::StepRows& rows, const kernels::SlotState& slots) override;
  void Embed(const kernels::EmbedArgs& args) override;
  void Qkv(const kernels::QkvArgs& args) override;
  void Attention(const kernels::AttentionArgs& args) override;
  void Project(const kernels::ProjectArgs& args) override;
  void GateUp(const kernels::GateUpArgs& args) override;
  void Head(const kernels::HeadArgs& args) override;
  void Candidates(const kernels::CandidatesArgs& args) override;
  void CopyPage(const kernels::KvPool& kv, int32_t from_page, int32_t to_page,
                int32_t num_tokens) override;
  void SetTap(kernels::Tap*) override {}

 private:
  // Keeps the first violation. False if `ok` is.
  template <typename... Parts>
  bool Require(bool ok, const Parts&... parts);
  int32_t GroupOf(const kernels::KvPool& kv) const;
  void CheckWrite(int32_t group, int32_t page, const char* what);
  // The page table entry of a slot's position, or null after a violation.
  const int32_t* Entry(const kernels::KvPool& kv, int32_t slot, int32_t position);
  void TouchLine(const kernels::KvPool& kv, int32_t group, int32_t slot, int32_t begin,
                 int32_t position);
  void FillLists(const kernels::CandidatesArgs& args, int32_t index, int32_t slot,
                 int32_t position);

  kernels::BackendInfo info_;
  Owners owners_;
  std::string violation_;
  int32_t num_slots_ = 0;           // of the last PrepareRows
  int32_t layer_ = -1;              // of the last Qkv since Embed
  std::vector<const void*> pools_;  // data of each layer group's pool, in the model's order
  Step now_;                        // since the last mark
  std::deque<Step> open_;
  struct ToHost {
    void* host = nullptr;
    int64_t mark = 0;
    std::vector<uint8_t> bytes;
  };
  std::deque<ToHost> to_host_;
  std::vector<std::vector<uint8_t>> free_bytes_;
  int64_t last_mark_ = 0;
};

}  // namespace tandem::test
