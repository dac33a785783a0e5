// The candidate lists of logits rows (ops.h, CandidatesArgs). Rows are spread over the threads;
// when there are fewer rows than threads, the pieces of each row are.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cpu/level.h"
#include "kernels/cpu/row_work.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace tandem::kernels::cpu {

class CandidateMaker final {
 public:
  CandidateMaker(const Kernels& kernels, ThreadPool* pool);
  CandidateMaker(const CandidateMaker&) = delete;
  CandidateMaker& operator=(const CandidateMaker&) = delete;

  void Run(const CandidatesArgs& args);

 private:
  void RunRow(const CandidatesArgs& args, int32_t index, RowWork& work, ThreadPool* pool);

  ThreadPool* const pool_;
  std::vector<std::unique_ptr<RowWork>> work_;  // one per thread
};

}  // namespace tandem::kernels::cpu
