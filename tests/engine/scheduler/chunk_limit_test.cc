#include "engine/scheduler/chunk_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace tandem::test {
namespace {

// splitmix64 (S. Vigna).
class Random final {
 public:
  // In [0, 1).
  double Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
  }

 private:
  uint64_t state_ = 1;
};

// Nanos of a step of so many rows, without noise.
using Machine = std::function<double(int32_t decode_rows, int32_t prefill_rows)>;

double LinearMachine(int32_t decode_rows, int32_t prefill_rows) {
  return 2e6 + 1e6 * decode_rows + 0.5e6 * prefill_rows;
}

// The weights are read once, whatever the rows; from 256 on arithmetic takes longer.
double FlatMachine(int32_t decode_rows, int32_t prefill_rows) {
  return 5e6 * std::max(1.0, (decode_rows + prefill_rows) / 256.0);
}

constexpr int32_t kStepTokens = 8192;

// A load on a machine: prompts arrive while sessions decode.
class Load final {
 public:
  Load(Machine machine, double slowdown, double noise)
      : machine(std::move(machine)),
        slowdown_(slowdown),
        noise_(noise),
        limit(slowdown, kStepTokens) {}

  void Step(int32_t decode_rows, int32_t prefill_rows) {
    double nanos = machine(decode_rows, prefill_rows);
    nanos *= 1 + noise_ * (2 * random_.Next() - 1);
    if (random_.Next() < outliers) nanos *= 50;
    limit.Observe(decode_rows, prefill_rows, static_cast<Nanos>(nanos));
  }

  void Decode(int32_t decode_rows, int steps) {
    for (int i = 0; i < steps; ++i) Step(decode_rows, 0);
  }

  // Steps with as much prefill as is allowed. Returns each one's prefill time in parts of what is
  // allowed for it.
  std::vector<double> Mixed(int32_t decode_rows, int steps) {
    std::vector<double> used;
    for (int i = 0; i < steps; ++i) {
      const int32_t rows = limit.MaxPrefillRows(decode_rows);
      EXPECT_GE(rows, 1);
      EXPECT_LE(rows, kStepTokens);
      const double alone = machine(decode_rows, 0);
      used.push_back((machine(decode_rows, rows) - alone) / ((slowdown_ - 1) * alone));
      Step(decode_rows, rows);
    }
    return used;
  }

  Machine machine;
  double outliers = 0;  // share of steps that take 50 times as long

 private:
  double slowdown_;
  double noise_;
  Random random_;

 public:
  ChunkLimit limit;
};

// Every step takes at most 1.1 times what is allowed and uses at least 60 % of it.
void ExpectWithin(const std::vector<double>& used, double slowdown) {
  const double most = (1.1 * slowdown - 1) / (slowdown - 1);
  for (size_t i = 0; i < used.size(); ++i) {
    EXPECT_LE(used[i], most) << "step " << i;
    EXPECT_GE(used[i], 0.6) << "step " << i;
  }
}

TEST(ChunkLimit, StartsWithAsManyRowsAsDecodeButAtLeastEight) {
  ChunkLimit limit(2, 64);
  EXPECT_EQ(limit.MaxPrefillRows(1), 8);
  EXPECT_EQ(limit.MaxPrefillRows(20), 20);
  EXPECT_EQ(limit.MaxPrefillRows(100), 64);
  EXPECT_EQ(ChunkLimit(2, 4).MaxPrefillRows(1), 4);
}

TEST(ChunkLimit, WithoutDecodeRowsOrWithoutALimitItIsTheWholeStep) {
  EXPECT_EQ(ChunkLimit(2, 64).MaxPrefillRows(0), 64);
  ChunkLimit unlimited(0, 64);
  unlimited.Observe(8, 0, 1000);
  unlimited.Observe(8, 8, 90'000);
  EXPECT_EQ(unlimited.MaxPrefillRows(8), 64);
}

TEST(ChunkLimit, WhereNoSlowdownIsAllowedPrefillStillProgresses) {
  Load load(FlatMachine, 1, 0.1);
  load.Decode(8, 10);
  EXPECT_EQ(load.limit.MaxPrefillRows(8), 1);
  for (int i = 0; i < 10; ++i) load.Step(8, 1);
  EXPECT_EQ(load.limit.MaxPrefillRows(8), 1);
}

TEST(ChunkLimit, ALinearMachineStaysWithinTheSlowdownAndUsesIt) {
  for (const double slowdown : {1.2, 1.5, 2.0, 4.0}) {
    Load load(LinearMachine, slowdown, 0.05);
    for (const int32_t decode_rows : {1, 8, 30, 64}) {
      load.Decode(decode_rows, 10);
      load.Mixed(decode_rows, 10);
      ExpectWithin(load.Mixed(decode_rows, 300), slowdown);
    }
  }
}

TEST(ChunkLimit, UnknownNumbersOfDecodeRowsAreInterpolated) {
  Load load(LinearMachine, 2, 0);
  load.Decode(4, 5);
  load.Decode(100, 5);
  load.Mixed(4, 10);
  load.Mixed(30, 1);
  ExpectWithin(load.Mixed(30, 10), 2);
}

// To take D for proportional to the rows, or for constant, would be wrong by more than is allowed.
TEST(ChunkLimit, WithinABucketTimesFollowALine) {
  for (const Machine& machine : {Machine(LinearMachine), Machine(FlatMachine)}) {
    for (const double slowdown : {1.2, 4.0}) {
      Load load(machine, slowdown, 0.02);
      for (int32_t i = 0; i < 64; ++i) load.Decode(65 + i * 29 % 60, 1);
      load.Mixed(95, 40);
      for (const int32_t decode_rows : {66, 95, 124}) {
        const double alone = machine(decode_rows, 0);
        const int32_t rows = load.limit.MaxPrefillRows(decode_rows);
        EXPECT_LE(machine(decode_rows, rows), 1.1 * slowdown * alone) << decode_rows;
        EXPECT_GE(machine(decode_rows, rows * 2), slowdown * alone) << decode_rows;
      }
    }
  }
}

TEST(ChunkLimit, TheFirstStepOfABucketIsJudgedByTheOthers) {
  Load load(LinearMachine, 2, 0);
  load.Decode(16, 10);
  load.Decode(256, 10);
  load.Mixed(256, 20);
  EXPECT_GT(load.limit.MaxPrefillRows(256), 500);
  load.limit.Observe(32, 0, 60 * kNanosPerSecond);
  EXPECT_LE(load.limit.MaxPrefillRows(32), 150);  // 68 would be right
}

TEST(ChunkLimit, AFlatMachineLetsChunksGrowToHundredsOfRows) {
  Load load(FlatMachine, 1.5, 0.05);
  load.Decode(8, 20);
  load.Mixed(8, 20);
  const std::vector<double> used = load.Mixed(8, 300);
  ExpectWithin(used, 1.5);
  EXPECT_GT(load.limit.MaxPrefillRows(8), 300);
}

TEST(ChunkLimit, GrowthIsAtMostTwofoldPerStep) {
  Load load(FlatMachine, 2, 0);
  load.Decode(8, 1);
  for (int32_t expected = 8; expected <= 128; expected *= 2) {
    EXPECT_EQ(load.limit.MaxPrefillRows(8), expected);
    load.Step(8, expected);
  }
}

TEST(ChunkLimit, APromptBeforeAnythingDecodesIsAnUpperEstimateOfTheCost) {
  Load load(FlatMachine, 2, 0);
  load.Step(0, 512);
  load.Decode(8, 1);
  EXPECT_EQ(load.limit.MaxPrefillRows(8), 256);
}

TEST(ChunkLimit, AStepOfDecodeAloneReplacesWhatMixedStepsTaught) {
  Load load(FlatMachine, 2, 0);
  load.Step(0, 512);
  load.Step(8, 16);
  EXPECT_EQ(load.limit.MaxPrefillRows(8), 240);
  load.Decode(8, 1);
  EXPECT_EQ(load.limit.MaxPrefillRows(8), 256);
}

TEST(ChunkLimit, LearnsWherePrefillNeverPauses) {
  Load load(FlatMachine, 2, 0.05);
  load.Step(0, 512);
  load.Mixed(8, 20);
  for (const double used : load.Mixed(8, 100)) EXPECT_LE(used, 1.2);
  EXPECT_GT(load.limit.MaxPrefillRows(8), 150);
}

TEST(ChunkLimit, FollowsPrefillThatGetsDearerAndCheaper) {
  Load load(LinearMachine, 2, 0.05);
  load.Decode(16, 10);
  load.Mixed(16, 50);
  double factor = 1;
  load.machine = [&](int32_t decode_rows, int32_t prefill_rows) {
    return LinearMachine(decode_rows, 0) + factor * 0.5e6 * prefill_rows;
  };
  for (; factor < 8; factor *= 1.01) ExpectWithin(load.Mixed(16, 1), 2);  // as a context grows
  factor = 1;                                                             // another prompt
  load.Mixed(16, 30);
  ExpectWithin(load.Mixed(16, 50), 2);
}

TEST(ChunkLimit, OneStepThatWasHeldUpChangesLittle) {
  for (const int32_t prefill_rows : {0, 20}) {
    Load load(LinearMachine, 2, 0);
    load.Decode(16, 30);
    load.Mixed(16, 30);
    const int32_t before = load.limit.MaxPrefillRows(16);
    load.limit.Observe(16, prefill_rows, 60 * kNanosPerSecond);
    EXPECT_GE(load.limit.MaxPrefillRows(16), before * 0.6);
    EXPECT_LE(load.limit.MaxPrefillRows(16), before * 1.1);
    load.Decode(16, 10);
    ExpectWithin(load.Mixed(16, 50), 2);
  }
}

TEST(ChunkLimit, AFirstStepThatWasHeldUpIsForgotten) {
  Load load(LinearMachine, 2, 0.05);
  load.limit.Observe(16, 0, 60 * kNanosPerSecond);
  load.limit.Observe(0, 100, 60 * kNanosPerSecond);
  load.limit.Observe(16, 8, 60 * kNanosPerSecond);
  load.Decode(16, 40);
  load.Mixed(16, 30);
  ExpectWithin(load.Mixed(16, 100), 2);
}

// As far as they can tell: the rest takes steps of decode alone.
TEST(ChunkLimit, AFirstDecodeStepThatWasHeldUpIsCorrectedByMixedOnes) {
  Load load(LinearMachine, 2, 0);
  load.limit.Observe(16, 0, 60 * kNanosPerSecond);
  for (const double used : load.Mixed(16, 50)) EXPECT_LE(used, 4);
  load.Decode(16, 40);
  load.Mixed(16, 10);
  ExpectWithin(load.Mixed(16, 30), 2);
}

TEST(ChunkLimit, StepsAreHeldUpNowAndThen) {
  Load load(LinearMachine, 2, 0.1);
  load.outliers = 0.01;
  int num_within = 0;
  for (int i = 0; i < 100; ++i) {
    load.Decode(16, 20);
    for (const double used : load.Mixed(16, 20)) num_within += used > 0.5 && used < 1.3;
  }
  EXPECT_GE(num_within, 1900);
}

TEST(ChunkLimit, TimesThatAreNotPositiveAreIgnored) {
  Load load(LinearMachine, 2, 0);
  load.Decode(16, 10);
  load.Mixed(16, 30);
  const int32_t before = load.limit.MaxPrefillRows(16);
  load.limit.Observe(16, 0, 0);
  load.limit.Observe(16, 8, -5);
  load.limit.Observe(0, 0, 100);
  EXPECT_EQ(load.limit.MaxPrefillRows(16), before);
}

TEST(ChunkLimit, TheTimeOfDecodeRowsIsTheirMeanAndBetweenThoseOfOtherNumbersOfRows) {
  ChunkLimit limit(2, 64);
  EXPECT_EQ(limit.DecodeNanos(3), 0);
  for (int i = 0; i < 20; ++i) {
    limit.Observe(1, 0, 1000);
    limit.Observe(8, 0, 1700);
  }
  EXPECT_DOUBLE_EQ(limit.DecodeNanos(1), 1000);
  EXPECT_DOUBLE_EQ(limit.DecodeNanos(4), 1300);
  EXPECT_DOUBLE_EQ(limit.DecodeNanos(8), 1700);
  EXPECT_DOUBLE_EQ(limit.DecodeNanos(60), 1700);
}

TEST(ChunkLimitDeath, ASlowdownBelowOneIsRefused) {
  EXPECT_DEATH(ChunkLimit(0.5, 8), "slowdown 0.5");
}

}  // namespace
}  // namespace tandem::test
