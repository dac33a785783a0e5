#include "kernels/draw/edit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::kernels {
namespace {

TEST(Edit, WithoutBiasAndCountsChangesNothing) {
  DrawParams params;
  params.repetition_penalty = 2.0f;
  params.presence_penalty = 1.0f;
  params.frequency_penalty = 1.0f;
  EXPECT_EQ(AdjustedLogit(3.25f, {}, params), 3.25f);
  EXPECT_TRUE(std::signbit(AdjustedLogit(-0.0f, {}, params)));
}

TEST(Edit, RepetitionDividesPositiveLogitsAndMultipliesOthers) {
  DrawParams params;
  params.repetition_penalty = 1.3f;
  const LogitEdit edit{.repetition_count = 5};
  EXPECT_EQ(AdjustedLogit(2.0f, edit, params), 2.0f / 1.3f);
  EXPECT_EQ(AdjustedLogit(-2.0f, edit, params), -2.0f * 1.3f);
  EXPECT_EQ(AdjustedLogit(0.0f, edit, params), 0.0f);
}

TEST(Edit, PresenceCountsOnceAndFrequencyEachTime) {
  DrawParams params;
  params.presence_penalty = 0.3f;
  params.frequency_penalty = 0.1f;
  const LogitEdit edit{.presence_count = 3, .frequency_count = 3};
  const float presence = 1.0f - 0.3f;
  const float frequency = 0.1f * 3.0f;
  EXPECT_EQ(AdjustedLogit(1.0f, edit, params), presence - frequency);
}

TEST(Edit, BiasComesBeforeThePenalties) {
  DrawParams params;
  params.repetition_penalty = 2.0f;
  const LogitEdit edit{.bias = 3.0f, .repetition_count = 1};
  EXPECT_EQ(AdjustedLogit(-1.0f, edit, params), 1.0f);  // (-1 + 3) / 2
}

TEST(Edit, ClampsLastSoThatNoSumIsInfinite) {
  DrawParams params;
  EXPECT_EQ(AdjustedLogit(3e38f, {}, params), kLogitLimit);
  EXPECT_EQ(AdjustedLogit(-3e38f, {}, params), -kLogitLimit);
  EXPECT_EQ(AdjustedLogit(3e38f, {.bias = 3e38f}, params), kLogitLimit);
}

TEST(Edit, B029_TheColdestTemperatureKeepsEveryScaledLogitFinite) {
  DrawParams params;
  params.greedy = false;
  params.inverse_temperature = 1.0f / 1e-5f;
  EXPECT_EQ(ScaledLogit(11.06f, 11.06f, params), 0.0f);
  const float lowest = ScaledLogit(-kLogitLimit, kLogitLimit, params);
  EXPECT_TRUE(std::isfinite(lowest));
  EXPECT_LT(lowest, 0.0f);
}

TEST(Windows, B037_ZeroCountsAllAndOnlyRepetitionCountsThePrompt) {
  DrawParams params;
  params.prompt_length = 10;
  EXPECT_EQ(RepetitionBegin(params, 15), 0);
  EXPECT_EQ(PresenceBegin(params, 15), 10);
  EXPECT_EQ(FrequencyBegin(params, 15), 10);
  params.repetition_window = 20;
  params.presence_window = 3;
  params.frequency_window = 1 << 20;
  EXPECT_EQ(RepetitionBegin(params, 15), 0);
  EXPECT_EQ(RepetitionBegin(params, 25), 5);
  EXPECT_EQ(PresenceBegin(params, 15), 12);
  EXPECT_EQ(PresenceBegin(params, 11), 10);  // never into the prompt
  EXPECT_EQ(FrequencyBegin(params, 15), 10);
}

}  // namespace
}  // namespace tandem::kernels
