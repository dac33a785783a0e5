#include "engine/sampling/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "kernels/draw/candidates.h"

namespace tandem {
namespace {

constexpr int32_t kVocab = 1000;

std::string Message(const std::function<void(SamplingParameters*)>& set) {
  SamplingParameters parameters;
  set(&parameters);
  const absl::Status status = Validate(parameters, kVocab);
  EXPECT_EQ(status.ok() || status.code() == absl::StatusCode::kInvalidArgument, true);
  return std::string(status.message());
}

TEST(Parameters, DefaultsAreValid) {
  EXPECT_EQ(Message([](SamplingParameters*) {}), "");
}

struct FloatField {
  const char* name;
  float SamplingParameters::*field;
  float low, high;
};
const FloatField kFloats[] = {
    {"top_p", &SamplingParameters::top_p, 0.0f, 1.0f},
    {"min_p", &SamplingParameters::min_p, 0.0f, 1.0f},
    {"repetition_penalty", &SamplingParameters::repetition_penalty, 0.01f, 100.0f},
    {"presence_penalty", &SamplingParameters::presence_penalty, -100.0f, 100.0f},
    {"frequency_penalty", &SamplingParameters::frequency_penalty, -100.0f, 100.0f},
    {"temperature", &SamplingParameters::temperature, 1e-5f, 100.0f},
};

TEST(Parameters, EveryNumberIsHeldToItsRangeAndNamed) {
  for (const FloatField& it : kFloats) {
    const auto with = [&](float value) {
      return Message([&](SamplingParameters* p) { p->*it.field = value; });
    };
    EXPECT_EQ(with(it.low), "") << it.name;
    EXPECT_EQ(with(it.high), "") << it.name;
    for (const float bad : {NAN, INFINITY, -INFINITY, std::nextafter(it.high, 1e30f),
                            std::nextafter(it.low, -1e30f), -std::numeric_limits<float>::max()}) {
      if (bad == 0.0f && it.field == &SamplingParameters::temperature) continue;
      const std::string message = with(bad);
      EXPECT_EQ(message.find(it.name), 0u) << it.name << " = " << bad << ": " << message;
      EXPECT_NE(message.find("it must be"), std::string::npos) << message;
    }
  }
  EXPECT_EQ(Message([](SamplingParameters* p) { p->temperature = NAN; }),
            "temperature is nan: it must be 0, or 1e-05 to 100");
  EXPECT_EQ(Message([](SamplingParameters* p) { p->temperature = -0.0f; }), "");
}

struct IntField {
  const char* name;
  int32_t SamplingParameters::*field;
  int32_t low, high;
};
const IntField kInts[] = {
    {"repetition_window", &SamplingParameters::repetition_window, 0, kMaxWindow},
    {"presence_window", &SamplingParameters::presence_window, 0, kMaxWindow},
    {"frequency_window", &SamplingParameters::frequency_window, 0, kMaxWindow},
    {"min_tokens", &SamplingParameters::min_tokens, 0, kMaxWindow},
    {"num_top", &SamplingParameters::num_top, 1, kernels::kMaxTop},
    {"num_perturbed", &SamplingParameters::num_perturbed, 1, kernels::kMaxPerturbed},
    {"num_raw_top", &SamplingParameters::num_raw_top, 0, kernels::kMaxRawTop},
};

TEST(Parameters, EveryCountIsHeldToItsRangeAndNamed) {
  for (const IntField& it : kInts) {
    const auto with = [&](int32_t value) {
      return Message([&](SamplingParameters* p) {
        p->want_raw = true;
        p->*it.field = value;
      });
    };
    EXPECT_EQ(with(it.low), "") << it.name;
    EXPECT_EQ(with(it.high), "") << it.name;
    for (const int32_t bad : {it.low - 1, it.high + 1, std::numeric_limits<int32_t>::min(),
                              std::numeric_limits<int32_t>::max()}) {
      EXPECT_EQ(with(bad), std::string(it.name) + " is " + std::to_string(bad) + ": it must be " +
                               std::to_string(it.low) + " to " + std::to_string(it.high));
    }
  }
}

TEST(Parameters, B035_NegativeTopKOtherThanOffIsRefused) {
  EXPECT_EQ(Message([](SamplingParameters* p) { p->top_k = -1; }), "");
  EXPECT_EQ(Message([](SamplingParameters* p) { p->top_k = -2; }),
            "top_k is -2: it must be at least 0, or -1 for off");
  EXPECT_EQ(Message([](SamplingParameters* p) { p->top_k = std::numeric_limits<int32_t>::max(); }),
            "");
}

struct IdsField {
  const char* name;
  std::vector<int32_t> SamplingParameters::*field;
  size_t most;
};
const IdsField kIds[] = {
    {"allowed_ids", &SamplingParameters::allowed_ids, kVocab},
    {"banned_ids", &SamplingParameters::banned_ids, kVocab},
    {"end_ids", &SamplingParameters::end_ids, kMaxEndIds},
    {"report_ids", &SamplingParameters::report_ids, kernels::kMaxReported},
};

TEST(Parameters, B047_B049_IdsOutsideTheVocabularyAreRefused) {
  for (const IdsField& it : kIds) {
    for (const int32_t bad : {-1, kVocab, 191222, std::numeric_limits<int32_t>::min(),
                              std::numeric_limits<int32_t>::max()}) {
      EXPECT_EQ(Message([&](SamplingParameters* p) {
                  p->want_raw = true;
                  p->*it.field = {0, bad};
                }),
                std::string(it.name) + " has id " + std::to_string(bad) + ": ids are 0 to 999");
    }
  }
  for (const int32_t bad : {-1, kVocab, 191222}) {
    EXPECT_EQ(Message([&](SamplingParameters* p) {
                p->logit_bias = {{bad, 1.0f}};
              }),
              "logit_bias has id " + std::to_string(bad) + ": ids are 0 to 999");
  }
}

TEST(Parameters, DuplicateIdsAreRefused) {
  for (const IdsField& it : kIds) {
    EXPECT_EQ(Message([&](SamplingParameters* p) {
                p->want_raw = true;
                p->*it.field = {5, 9, 5};
              }),
              std::string(it.name) + " has id 5 twice");
  }
  EXPECT_EQ(Message([](SamplingParameters* p) {
              p->logit_bias = {{3, 1.0f}, {3, 2.0f}};
            }),
            "logit_bias has id 3 twice");
}

TEST(Parameters, ListsAreBounded) {
  for (const IdsField& it : kIds) {
    EXPECT_EQ(Message([&](SamplingParameters* p) {
                p->want_raw = true;
                (p->*it.field).assign(it.most + 1, 1);
              }),
              std::string(it.name) + " has " + std::to_string(it.most + 1) + " ids: at most " +
                  std::to_string(it.most));
  }
  SamplingParameters many;
  for (int32_t id = 0; id <= kMaxBias; ++id) many.logit_bias.emplace_back(id, 0.5f);
  EXPECT_EQ(Validate(many, 5000).message(), "logit_bias has 1025 ids: at most 1024");
  many.logit_bias.pop_back();
  EXPECT_TRUE(Validate(many, 5000).ok());
}

TEST(Parameters, BiasesAreFiniteAndBounded) {
  for (const float bad : {NAN, INFINITY, -INFINITY, 10001.0f, -10001.0f}) {
    EXPECT_EQ(Message([&](SamplingParameters* p) {
                p->logit_bias = {{3, bad}};
              }).find("logit_bias of id 3 is"),
              0u)
        << bad;
  }
  EXPECT_EQ(Message([](SamplingParameters* p) { p->logit_bias = {{3, -1e4f}}; }), "");
}

TEST(Parameters, TheRawPartIsAskedForAsAWhole) {
  EXPECT_EQ(Message([](SamplingParameters* p) { p->num_raw_top = 5; }),
            "num_raw_top is 5: it needs want_raw");
  EXPECT_EQ(Message([](SamplingParameters* p) {
              p->report_ids = {1, 2};
            }),
            "report_ids has 2 ids: it needs want_raw");
}

TEST(Parameters, DrawParamsAreRoundedOnceAndFixed) {
  SamplingParameters p;
  p.temperature = 3.0f;
  p.top_k = 5000;
  p.top_p = 0.5f;
  p.min_p = 0.25f;
  p.presence_penalty = -0.0f;
  const kernels::DrawParams draw = ToDrawParams(p, 7, 12, kVocab);
  EXPECT_FALSE(draw.greedy);
  EXPECT_EQ(draw.inverse_temperature, 1.0f / 3.0f);
  EXPECT_EQ(draw.top_k, kVocab);
  EXPECT_EQ(draw.top_p_fixed, uint64_t{1} << 31);
  EXPECT_EQ(draw.min_p_weight, uint64_t{1} << 38);
  EXPECT_FALSE(std::signbit(draw.presence_penalty));
  EXPECT_EQ(draw.choice, 7u);
  EXPECT_EQ(draw.prompt_length, 12);
  // 2^-33 is half of a unit of 2^-32, and rounds up; the next float below rounds to 0.
  p.top_p = 0x1p-33f;
  EXPECT_EQ(ToDrawParams(p, 0, 1, kVocab).top_p_fixed, 1u);
  p.top_p = std::nextafter(0x1p-33f, 0.0f);
  EXPECT_EQ(ToDrawParams(p, 0, 1, kVocab).top_p_fixed, 0u);
  p.top_p = 1.0f;
  EXPECT_EQ(ToDrawParams(p, 0, 1, kVocab).top_p_fixed, kernels::kTopPOff);
  p.top_p = std::nextafter(1.0f, 0.0f);
  EXPECT_LT(ToDrawParams(p, 0, 1, kVocab).top_p_fixed, kernels::kTopPOff);
}

TEST(Parameters, AllowedBitsAreTheAllowedIdsWithoutTheBannedOnes) {
  SamplingParameters p;
  EXPECT_TRUE(AllowedBits(p, 40).empty());
  p.banned_ids = {0, 33};
  EXPECT_EQ(AllowedBits(p, 40), (std::vector<uint32_t>{0xFFFFFFFEu, 0xFDu}));
  p.allowed_ids = {0, 1, 39};
  EXPECT_EQ(AllowedBits(p, 40), (std::vector<uint32_t>{0b10u, 0x80u}));
}

}  // namespace
}  // namespace tandem
