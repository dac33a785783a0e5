// When a bench sends, and what.
#include "services/cli/load_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "tests/support/process.h"

namespace tandem::cli {
namespace {

using testing::HasSubstr;

TEST(PoissonArrivals, TheFirstOnesAreKnown) {
  std::mt19937_64 random(3);
  double seconds = 0.0;
  PoissonArrivals arrivals(2.0, 3);
  for (int i = 0; i < 5; ++i) {
    // The inverse of the exponential distribution's cumulative function.
    seconds += -std::log1p(-std::ldexp(static_cast<double>(random() >> 11), -53)) / 2.0;
    EXPECT_EQ(arrivals.Next(), static_cast<Nanos>(seconds * 1e9));
  }
}

TEST(PoissonArrivals, GapsHaveTheMeanAndTheSpreadOfAnExponentialDistribution) {
  constexpr int kCount = 100'000;
  PoissonArrivals arrivals(50.0, 1);
  double sum = 0.0, squares = 0.0;
  int longer_than_mean = 0;
  Nanos before = 0;
  for (int i = 0; i < kCount; ++i) {
    const Nanos next = arrivals.Next();
    ASSERT_GE(next, before);
    const double gap = static_cast<double>(next - before) * 1e-9;
    before = next;
    sum += gap;
    squares += gap * gap;
    longer_than_mean += gap > 0.02;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.02, 0.0003);
  EXPECT_NEAR(std::sqrt(squares / kCount - mean * mean), 0.02, 0.0005);
  EXPECT_NEAR(static_cast<double>(longer_than_mean) / kCount, std::exp(-1.0), 0.01);
}

TEST(RandomPrompts, AreTheSameForTheSameSeedAndNumber) {
  const RandomPrompts prompts{.tokens = 40, .shared_prefix = 10, .vocab_size = 1000};
  const auto one = PromptSource::Random(prompts, 5);
  const auto two = PromptSource::Random(prompts, 5);
  const auto other = PromptSource::Random(prompts, 6);
  ASSERT_TRUE(one.ok() && two.ok() && other.ok());
  EXPECT_EQ(one->Get(3).ids, two->Get(3).ids);
  EXPECT_NE(one->Get(3).ids, other->Get(3).ids);
  EXPECT_EQ(one->Get(3).text, "");
}

TEST(RandomPrompts, ShareTheirPrefixAndNothingElse) {
  const auto source =
      PromptSource::Random({.tokens = 40, .shared_prefix = 10, .vocab_size = 1 << 20}, 5);
  ASSERT_TRUE(source.ok());
  const std::vector<int32_t> one = source->Get(0).ids;
  const std::vector<int32_t> two = source->Get(1).ids;
  ASSERT_EQ(one.size(), 40u);
  ASSERT_EQ(two.size(), 40u);
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + 10, two.begin()));
  for (int i = 10; i < 40; ++i) EXPECT_NE(one[i], two[i]) << i;
}

TEST(RandomPrompts, StayInTheVocabularyAndAvoidWhatIsToBeAvoided) {
  const auto source =
      PromptSource::Random({.tokens = 1000, .vocab_size = 4, .avoid = {2, 0, 2}}, 5);
  ASSERT_TRUE(source.ok());
  EXPECT_THAT(source->Get(0).ids, testing::Each(testing::AnyOf(1, 3)));
  EXPECT_THAT(source->Get(0).ids, testing::Contains(1));
  EXPECT_THAT(source->Get(0).ids, testing::Contains(3));
}

TEST(RandomPrompts, SayWhichSizeIsWrong) {
  const auto error = [](RandomPrompts prompts) {
    return std::string(PromptSource::Random(std::move(prompts), 1).status().message());
  };
  EXPECT_THAT(error({.tokens = 0, .vocab_size = 9}), HasSubstr("--prompt-tokens is 0"));
  EXPECT_THAT(error({.tokens = 4, .shared_prefix = 5, .vocab_size = 9}),
              HasSubstr("--shared-prefix is 5: it must be 0 to 4"));
  EXPECT_THAT(error({.tokens = 4, .vocab_size = 2, .avoid = {0, 1}}), HasSubstr("2 ids"));
}

class PromptFile : public testing::Test {
 protected:
  absl::StatusOr<PromptSource> Read(const std::string& content) {
    std::ofstream(folder_.File("p")) << content;
    return PromptSource::FromFile(folder_.File("p"));
  }
  test::TemporaryFolder folder_;
};

TEST_F(PromptFile, HoldsTextAndJsonALineAndBeginsAgainAtItsEnd) {
  const auto source = Read(
      "plain text\r\n\n\"quoted \\\"text\\\"\"\n{\"text\": \"a\\nb\"}\n"
      "{\"prompt\": [1, 2, 3], \"text\": \"not this\"}\n[1] is text\n");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->Get(0).text, "plain text");
  EXPECT_EQ(source->Get(1).text, "quoted \"text\"");
  EXPECT_EQ(source->Get(2).text, "a\nb");
  EXPECT_EQ(source->Get(3).ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(source->Get(4).text, "[1] is text");
  EXPECT_EQ(source->Get(5).text, "plain text");
}

TEST_F(PromptFile, NamesTheLineThatIsWrong) {
  for (const char* line :
       {"{\"prompt\": 3}", "{\"other\": \"x\"}", "{broken", "\"open", "{\"prompt\": [-1]}",
        "{\"prompt\": []}", "{\"prompt\": [4294967296]}"}) {
    const auto source = Read(std::string("fine\n") + line + "\n");
    ASSERT_FALSE(source.ok()) << line;
    EXPECT_THAT(std::string(source.status().message()), HasSubstr("line 2")) << line;
  }
  EXPECT_THAT(std::string(Read("\n\n").status().message()), HasSubstr("no prompt"));
  EXPECT_EQ(PromptSource::FromFile(folder_.File("none")).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem::cli
