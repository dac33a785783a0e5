#include "services/common/prompt_logprobs_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 100;
const std::vector<int32_t> kPrompt = {5, 6, 7, 8, 9};
const std::vector<int32_t> kReport = {50, 3};

// Positions 2 and 3, two others each.
PromptLogprobs Some() {
  PromptLogprobs out;
  out.position = 2;
  out.num_raw_top = 2;
  out.num_reported = 2;
  out.tokens = {{7, 1.5f, 3}, {8, -2.5f, 99}};
  out.raw_top = {{1, 9.0f, 0}, {2, 8.0f, 1}, {3, 7.0f, 0}, {0, 6.0f, 1}};
  out.reported = {{50, 0.5f, 10}, {3, 7.0f, 11}, {50, 0.25f, 12}, {3, 7.0f, 0}};
  out.raw_max = {9.0f, 7.0f};
  out.raw_total = {(uint64_t{1} << 40) + 7, uint64_t{1} << 50};
  return out;
}

absl::StatusOr<PromptLogprobs> Read(const pb::PromptLogprobs& message) {
  return FromProto(message, kPrompt, kReport, 2, kVocab);
}

void ExpectEntries(const std::vector<kernels::RawEntry>& a,
                   const std::vector<kernels::RawEntry>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].id, b[i].id);
    EXPECT_EQ(a[i].raw, b[i].raw);
    EXPECT_EQ(a[i].raw_rank, b[i].raw_rank);
  }
}

TEST(PromptLogprobsCodec, WhatIsWrittenReadsTheSame) {
  const PromptLogprobs some = Some();
  pb::PromptLogprobs message;
  ToProto(some, &message);
  pb::PromptLogprobs read;
  ASSERT_TRUE(read.ParseFromString(message.SerializeAsString()));
  const auto got = Read(read);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->position, 2);
  EXPECT_EQ(got->num_raw_top, 2);
  EXPECT_EQ(got->num_reported, 2);
  ExpectEntries(got->tokens, some.tokens);
  ExpectEntries(got->raw_top, some.raw_top);
  ExpectEntries(got->reported, some.reported);
  EXPECT_EQ(got->raw_max, some.raw_max);
  EXPECT_EQ(got->raw_total, some.raw_total);
}

TEST(PromptLogprobsCodec, ListsOfAVocabularyThatIsShorterAreTheVocabulary) {
  PromptLogprobs some = Some();
  pb::PromptLogprobs message;
  ToProto(some, &message);
  message.mutable_ranks()->Set(1, 1);
  message.mutable_raw_ids()->Set(1, 1);
  for (int i = 0; i < 4; ++i) {
    message.mutable_raw_ids()->Set(i, i % 2);
    message.mutable_reported_ranks()->Set(i, 0);
  }
  message.mutable_ranks()->Set(0, 0);
  EXPECT_TRUE(FromProto(message, kPrompt, kReport, 20, 2).ok());
  EXPECT_FALSE(FromProto(message, kPrompt, kReport, 20, 3).ok());
}

TEST(PromptLogprobsCodec, WhatIsWrongIsRefusedByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  using M = pb::PromptLogprobs;
  const struct {
    std::function<void(M*)> break_it;
    const char* says;
  } cases[] = {
      {[](M* m) { m->set_first_position(0); }, "positions 0 to 1: the prompt has 1 to 4"},
      {[](M* m) { m->set_first_position(4); }, "positions 4 to 5"},
      {[](M* m) { m->set_first_position(INT32_MAX); }, "positions 2147483647"},
      {[](M* m) { m->clear_values(); }, "positions 2 to 1"},
      {[](M* m) { m->set_num_raw_top(1); }, "num_raw_top is 1: it must be 2"},
      {[](M* m) { m->add_ranks(0); }, "ranks has 3"},
      {[](M* m) { m->add_max(0); }, "max has 3"},
      {[](M* m) { m->add_total_weight(1); }, "total_weight has 3"},
      {[](M* m) { m->add_raw_ids(1); }, "raw_ids has 5"},
      {[](M* m) { m->add_raw_values(1); }, "raw_values has 5"},
      {[](M* m) { m->add_reported_values(1); }, "reported_values has 5"},
      {[](M* m) { m->add_reported_ranks(1); }, "reported_ranks has 5"},
      {[](M* m) { m->set_ranks(0, 100); }, "ranks holds 100"},
      {[](M* m) { m->set_raw_ids(3, 100); }, "raw_ids holds 100"},
      {[](M* m) { m->set_reported_ranks(3, 0xffffffff); }, "reported_ranks holds 4294967295"},
      {[&](M* m) { m->set_values(1, nan); }, "values holds nan"},
      {[&](M* m) { m->set_max(1, nan); }, "max holds nan"},
      {[&](M* m) { m->set_raw_values(1, nan); }, "raw_values holds nan"},
      {[&](M* m) { m->set_reported_values(1, nan); }, "reported_values holds nan"},
      {[](M* m) { m->set_total_weight(1, 0); }, "total_weight holds 0"},
  };
  for (const auto& [break_it, says] : cases) {
    pb::PromptLogprobs message;
    ToProto(Some(), &message);
    break_it(&message);
    const absl::Status status = Read(message).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
}

}  // namespace
}  // namespace tandem
