#include "engine/base/status.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/base/check.h"
#include "engine/base/clock.h"

namespace tandem {
namespace {

absl::StatusOr<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("value is ", value, ": it must be even");
  return std::make_unique<int>(value / 2);
}

absl::StatusOr<int> Quarter(int value) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> half, Half(value));
  ASSIGN_OR_RETURN(const std::unique_ptr<int> quarter, Half(*half));
  return *quarter;
}

absl::Status CheckQuarter(int value) {
  RETURN_IF_ERROR(Quarter(value).status());
  return absl::OkStatus();
}

TEST(StatusMacros, PassValuesOn) {
  ASSERT_TRUE(Quarter(12).ok());
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_TRUE(CheckQuarter(12).ok());
}

TEST(StatusMacros, ReturnTheFirstError) {
  EXPECT_EQ(Quarter(3).status().message(), "value is 3: it must be even");
  EXPECT_EQ(CheckQuarter(6), absl::InvalidArgumentError("value is 3: it must be even"));
}

TEST(StatusMacros, WorkAsTheOnlyStatementOfAnIf) {
  const auto check = [](bool ask) -> absl::Status {
    if (ask)
      RETURN_IF_ERROR(CheckQuarter(1));
    else
      return absl::CancelledError();
    return absl::OkStatus();
  };
  EXPECT_EQ(check(true).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check(false).code(), absl::StatusCode::kCancelled);
}

TEST(StatusHelpers, HaveTheirCodes) {
  EXPECT_EQ(InvalidArgument("a", 1), absl::InvalidArgumentError("a1"));
  EXPECT_EQ(FailedPrecondition("a", 1), absl::FailedPreconditionError("a1"));
  EXPECT_EQ(ResourceExhausted("a", 1), absl::ResourceExhaustedError("a1"));
  EXPECT_EQ(Unimplemented("a", 1), absl::UnimplementedError("a1"));
  EXPECT_EQ(NotFound("a", 1), absl::NotFoundError("a1"));
  EXPECT_EQ(Internal("a", 1), absl::InternalError("a1"));
}

TEST(Check, EvaluatesItsConditionOnceAndItsMessageNever) {
  int conditions = 0;
  int messages = 0;
  TANDEM_CHECK(++conditions == 1) << ++messages;
  EXPECT_EQ(conditions, 1);
  EXPECT_EQ(messages, 0);
}

TEST(CheckDeathTest, SaysPlaceConditionAndValues) {
  const int rows = 7;
  EXPECT_DEATH(TANDEM_CHECK(rows < 5) << "rows " << rows,
               "status_test.cc:.*CHECK failed: rows < 5 rows 7");
}

TEST(Clock, DoesNotRunBackwards) {
  const Nanos first = SteadyNow();
  EXPECT_GE(SteadyNow(), first);
}

}  // namespace
}  // namespace tandem
