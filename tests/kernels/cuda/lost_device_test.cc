// A device that is lost is reported by every later wait. In a process of its own: the device stays
// lost for whoever shares it.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/cuda/cuda_ops.h"

namespace tandem::kernels {
namespace {

// A step whose rows stand where no memory is.
[[noreturn]] void LoseTheDevice() {
  auto ops = MakeCudaOps({.max_rows = 8});
  if (!ops.ok()) std::exit(2);
  StepRows rows;
  rows.num_rows = 4;
  rows.slot = rows.position = reinterpret_cast<const int32_t*>(uintptr_t{1} << 45);
  rows.token = rows.row_position = reinterpret_cast<int32_t*>(uintptr_t{1} << 45);
  SlotState slots;
  slots.num_slots = 1;
  slots.context_length = 8;
  slots.tokens = slots.num_tokens = rows.token;
  (*ops)->PrepareRows(rows, slots);
  const absl::Status first = (*ops)->Finish((*ops)->Mark());
  const absl::Status second = (*ops)->Finish((*ops)->Mark());
  std::fprintf(stderr, "%s\n", first.ToString().c_str());
  const bool is_reported = first.code() == absl::StatusCode::kInternal && first == second;
  ops->reset();  // ends without a word
  std::exit(is_reported ? 0 : 3);
}

TEST(CudaLostDeviceDeathTest, IsReportedByThisWaitAndEveryLaterOne) {
  const auto ops = MakeCudaOps({.max_rows = 8});
  if (ops.status().code() == absl::StatusCode::kFailedPrecondition) GTEST_SKIP() << ops.status();
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a program of its own, not a fork
  EXPECT_EXIT(LoseTheDevice(), testing::ExitedWithCode(0), "the device is lost");
}

}  // namespace
}  // namespace tandem::kernels
