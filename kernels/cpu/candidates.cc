#include "kernels/cpu/candidates.h"

#include "kernels/append_draws.h"
#include "kernels/check.h"

namespace tandem::kernels::cpu {

CandidateMaker::CandidateMaker(const Kernels& kernels, ThreadPool* pool) : pool_(pool) {
  for (int32_t i = 0; i < pool->num_threads(); ++i) {
    work_.push_back(std::make_unique<RowWork>(kernels));
  }
}

void CandidateMaker::RunRow(const CandidatesArgs& args, int32_t index, RowWork& work,
                            ThreadPool* pool) {
  const int32_t row = args.logits_rows[index];
  KERNELS_REQUIRE(row >= 0 && row < args.rows.num_rows, "row %d of %d", row, args.rows.num_rows);
  if (args.rows.token[row] == kIdleToken) {
    args.summary[index] = RowSummary{};
    args.summary[index].first_nonfinite = -1;
    args.summary[index].drawn = -1;
    return;
  }
  const int32_t slot = args.rows.slot[row];
  const DrawParams& params = args.slots.params[slot];
  KERNELS_REQUIRE(params.num_top >= 0 && params.num_top <= args.max_top &&
                      params.num_perturbed >= 0 && params.num_perturbed <= args.max_perturbed,
                  "lists of %d and %d, room for %d and %d", params.num_top, params.num_perturbed,
                  args.max_top, args.max_perturbed);
  KERNELS_REQUIRE(params.num_raw_top >= 0 && params.num_raw_top <= kMaxRawTop, "num_raw_top %d",
                  params.num_raw_top);
  RowOutput out;
  out.summary = args.summary + index;
  out.top = args.top + int64_t{index} * args.max_top;
  out.perturbed = args.perturbed + int64_t{index} * args.max_perturbed;
  if (args.raw_top != nullptr) out.raw_top = args.raw_top + int64_t{index} * kMaxRawTop;
  if (args.reported != nullptr) out.reported = args.reported + int64_t{index} * kMaxReported;
  if (args.next != nullptr) out.next = args.next + index;
  work.Compute(args.logits + int64_t{index} * args.slots.vocab_size, args.slots, slot,
               args.rows.row_position[row] + 1, pool, out);
}

void CandidateMaker::Run(const CandidatesArgs& args) {
  const int32_t n = args.num_logits_rows;
  if (n < pool_->num_threads()) {
    for (int32_t i = 0; i < n; ++i) RunRow(args, i, *work_[0], pool_);
  } else {
    pool_->Run(n, [&](int32_t i, int32_t thread) { RunRow(args, i, *work_[thread], nullptr); });
  }
  if (args.advance) AppendDraws(args);
}

}  // namespace tandem::kernels::cpu
