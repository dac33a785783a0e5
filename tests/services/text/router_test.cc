// Which worker gets a session, and which gets one that lost its own.
#include "services/text/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::text {
namespace {

using testing::HasSubstr;

class RouterTest : public testing::Test {
 protected:
  std::shared_ptr<const ServedModel> Named(const std::string& name,
                                           const std::string& weights = "w",
                                           const std::string& numerics = "n") {
    auto out = std::make_shared<ServedModel>();
    out->name = name;
    out->weights_fingerprint = weights;
    out->numerics_fingerprint = numerics;
    return out;
  }
  void Connect(uint64_t connection, std::shared_ptr<const ServedModel> model) {
    router_.Connected({.worker = 0, .connection = connection, .model = std::move(model)});
  }
  void Report(uint64_t connection, int32_t running) {
    decode::v1::Load load;
    load.set_running(running);
    router_.Report(connection, load);
  }
  Router router_;
};

TEST_F(RouterTest, PlacesOnTheWorkerWithTheLeastLoad) {
  const auto model = Named("m");
  Connect(1, model);
  Connect(2, model);
  Report(1, 5);
  Report(2, 3);
  EXPECT_EQ(router_.Place(*model, 1)->connection, 2u);
  Report(2, 9);
  EXPECT_EQ(router_.Place(*model, 1)->connection, 1u);
}

TEST_F(RouterTest, CountsWhatItPlacedBeforeAnyReportKnowsOfIt) {
  const auto model = Named("m");
  Connect(1, model);
  Connect(2, model);
  EXPECT_EQ(router_.Place(*model, 4)->connection, 1u);
  EXPECT_EQ(router_.Place(*model, 1)->connection, 2u);
  EXPECT_EQ(router_.Place(*model, 1)->connection, 2u);
  router_.Release(1, 4);
  EXPECT_EQ(router_.Place(*model, 1)->connection, 1u);
}

TEST_F(RouterTest, SaysWhatItKnowsOfEachWorker) {
  const auto model = Named("m");
  Connect(1, model);
  Connect(2, model);
  Report(2, 7);
  router_.SetSuspect(1, true);
  router_.SetDraining(2);
  ASSERT_EQ(router_.Workers().size(), 2u);
  const Router::WorkerStatus one = router_.Workers()[0];
  EXPECT_EQ(one.ref.connection, 1u);
  EXPECT_FALSE(one.load.has_value());
  EXPECT_EQ(one.load_age, 0);
  EXPECT_TRUE(one.suspect);
  EXPECT_FALSE(one.draining);
  const Router::WorkerStatus two = router_.Workers()[1];
  ASSERT_TRUE(two.load.has_value());
  EXPECT_EQ(two.load->running(), 7);
  EXPECT_GE(two.load_age, 0);
  EXPECT_TRUE(two.draining);
  router_.Lost(1);
  EXPECT_EQ(router_.Workers().size(), 1u);
}

TEST_F(RouterTest, PlacesOnlyWhereWeightsAndTokenizerAreEqual) {
  Connect(1, Named("m", "old"));
  Connect(2, Named("m", "new"));
  EXPECT_EQ(router_.Place(*Named("m", "new"), 1)->connection, 2u);
  EXPECT_TRUE(absl::IsUnavailable(router_.Place(*Named("m", "other"), 1).status()));
}

TEST_F(RouterTest, FindsModelsByNameAndTheOnlyOneWithoutName) {
  EXPECT_TRUE(absl::IsUnavailable(router_.Find("m").status()));
  Connect(1, Named("m"));
  EXPECT_EQ((*router_.Find(""))->name, "m");
  EXPECT_TRUE(absl::IsNotFound(router_.Find("x").status()));
  Connect(2, Named("a"));
  const absl::Status status = router_.Find("").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("several"));
  EXPECT_EQ((*router_.Find("a"))->name, "a");
  router_.Lost(2);
  EXPECT_EQ((*router_.Find(""))->name, "m");
}

TEST_F(RouterTest, CountsTheWorkersOfAModel) {
  Connect(1, Named("m"));
  Connect(2, Named("m"));
  Connect(3, Named("a"));
  const std::vector<Router::ModelCount> models = router_.Models();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].model->name, "a");
  EXPECT_EQ(models[1].workers, 2);
}

TEST_F(RouterTest, AWorkerThatIsSuspectOrDrainsGetsNothing) {
  const auto model = Named("m");
  Connect(1, model);
  Connect(2, model);
  Report(2, 50);
  router_.SetSuspect(1, true);
  EXPECT_EQ(router_.Place(*model, 1)->connection, 2u);
  EXPECT_EQ(router_.PlaceAgain(*model, 1, 2, "n")->connection, 2u);
  router_.SetDraining(2);
  EXPECT_TRUE(absl::IsUnavailable(router_.Place(*model, 1).status()));
  EXPECT_TRUE(absl::IsUnavailable(router_.PlaceAgain(*model, 1, 0, "n").status()));
  EXPECT_FALSE(router_.any());
  EXPECT_EQ(router_.Models().at(0).workers, 2) << "they are known still";
  router_.SetSuspect(1, false);
  EXPECT_TRUE(router_.any());
  EXPECT_EQ(router_.Place(*model, 1)->connection, 1u);
}

TEST_F(RouterTest, WhatIsOpenedAgainGoesToAnotherWorkerThenToEqualNumericsThenToTheLeastLoad) {
  const auto model = Named("m");
  Connect(1, model);
  Connect(2, Named("m", "w", "other"));
  Connect(3, model);
  Connect(4, Named("m", "unlike"));
  Connect(5, model);
  Report(3, 9);
  Report(5, 5);
  EXPECT_EQ(router_.PlaceAgain(*model, 1, 1, "n")->connection, 5u);
  router_.Lost(5);
  router_.Lost(3);
  EXPECT_EQ(router_.PlaceAgain(*model, 1, 1, "n")->connection, 2u);
  router_.Lost(2);
  EXPECT_EQ(router_.PlaceAgain(*model, 1, 1, "n")->connection, 1u) << "better than none";
  router_.Lost(1);
  EXPECT_TRUE(absl::IsUnavailable(router_.PlaceAgain(*model, 1, 1, "n").status()));
}

TEST_F(RouterTest, OnlySoManyWaitForTheirAdmissionAtAWorkerAndABetterOneIsWorthTheWait) {
  const auto model = Named("m");
  Connect(1, model);
  Connect(2, Named("m", "w", "other"));
  for (int i = 0; i < Router::kMaxReopening; ++i) {
    EXPECT_EQ(router_.PlaceAgain(*model, 2, 0, "n")->connection, 1u);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(router_.PlaceAgain(*model, 2, 0, "n").status()));
  EXPECT_EQ(router_.PlaceAgain(*model, 2, 1, "n")->connection, 2u) << "it comes from the first";
  EXPECT_TRUE(router_.Place(*model, 1).ok()) << "new ones are not held up";
  router_.Settled(1);
  EXPECT_EQ(router_.PlaceAgain(*model, 2, 0, "n")->connection, 1u);
}

}  // namespace
}  // namespace tandem::text
