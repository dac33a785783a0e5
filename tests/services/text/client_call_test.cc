// What stands between a shard and a client, whatever door the client came in by.
#include "services/text/client_call.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "services/text/intake.h"

namespace tandem::text {
namespace {

constexpr uint64_t kKey = 7;

v1::GenerateResponse Delta(int32_t choice, const std::string& text) {
  v1::GenerateResponse message;
  message.mutable_delta()->set_choice(choice);
  message.mutable_delta()->set_text(text);
  return message;
}

class ClientCallTest : public testing::Test {
 protected:
  bool Write(const std::string& text, int64_t behind = 0) {
    v1::GenerateResponse message = Delta(0, text);
    return call_.Write(&message, behind);
  }

  Router router_;
  Shard shard_{0, &router_};
  ClientCall call_{kKey};
};

TEST_F(ClientCallTest, ItEndsOnceEverythingIsTaken) {
  EXPECT_FALSE(Write("text"));
  call_.Finish(absl::UnavailableError("why"));
  EXPECT_EQ(call_.end(), nullptr);
  v1::GenerateResponse taken;
  ASSERT_TRUE(call_.Take(&taken));
  EXPECT_EQ(taken.delta().text(), "text");
  EXPECT_FALSE(call_.Take(&taken));
  ASSERT_NE(call_.end(), nullptr);
  EXPECT_EQ(*call_.end(), absl::UnavailableError("why"));
}

TEST_F(ClientCallTest, WhatWaitsBehindItCountsLikeItsOwn) {
  call_.SetShard(&shard_);
  EXPECT_FALSE(Write("a", Outbox::kPauseBytes / 2));
  EXPECT_EQ(call_.TakeResume(0), nullptr) << "it was not paused";
  EXPECT_TRUE(Write("b", Outbox::kPauseBytes));
  EXPECT_EQ(call_.TakeResume(Outbox::kPauseBytes / 2), nullptr) << "its own bytes are too many";
  v1::GenerateResponse taken;
  ASSERT_TRUE(call_.Take(&taken));
  EXPECT_EQ(taken.delta().text(), "ab");
  EXPECT_EQ(call_.TakeResume(Outbox::kPauseBytes / 2 + 1), nullptr);
  EXPECT_EQ(call_.TakeResume(Outbox::kPauseBytes / 2), &shard_);
  EXPECT_EQ(call_.TakeResume(0), nullptr) << "once";
}

TEST_F(ClientCallTest, NothingWaitsForAClientThatIsGone) {
  EXPECT_EQ(call_.Cancel(), nullptr) << "no shard has it yet";
  call_.SetShard(&shard_);
  Write("text");
  EXPECT_EQ(call_.Cancel(), &shard_);
  EXPECT_TRUE(call_.cancelled());
  EXPECT_FALSE(Write(std::string(1 << 20, 'x'))) << "nobody is to be paused for it";
  v1::GenerateResponse taken;
  EXPECT_FALSE(call_.Take(&taken));
}

class IntakeTest : public testing::Test {
 protected:
  Router router_;
  Shard shard_{0, &router_};
  std::optional<Intake> intake_{std::in_place, IntakeOptions{.max_requests = 3}, &router_,
                                std::vector<Shard*>{&shard_}};
};

TEST_F(IntakeTest, PlacesAreCountedAndGivenBack) {
  Intake::Place one;
  EXPECT_TRUE(intake_->Admit(1, &one).ok());
  EXPECT_TRUE(intake_->Admit(2, &one).ok());
  EXPECT_EQ(intake_->active(), 3);
  Intake::Place two;
  const absl::Status full = intake_->Admit(1, &two);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(full.message()).find("at most 3"), std::string::npos);
  EXPECT_EQ(intake_->active(), 3);
  two = std::move(one);
  EXPECT_EQ(intake_->active(), 3);
  two = Intake::Place();
  EXPECT_EQ(intake_->active(), 0);
}

TEST_F(IntakeTest, NothingIsAdmittedWhileItDrains) {
  intake_->Drain();
  Intake::Place place;
  EXPECT_EQ(intake_->Admit(1, &place).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(intake_->active(), 0);
}

TEST_F(IntakeTest, APlaceMayOutliveIt) {
  Intake::Place place;
  EXPECT_TRUE(intake_->Admit(1, &place).ok());
  intake_.reset();
}

}  // namespace
}  // namespace tandem::text
