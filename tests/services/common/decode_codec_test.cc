#include "services/common/decode_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// Two entries in each list; every field differs from every other.
Candidates SomeCandidates() {
  Candidates out;
  out.top = {{7, 3.5f, 3.25f, 0}, {9, 1.5f, 1.25f, 4}};
  out.perturbed = {{9, 1.5f, 1.25f, 2.75f, 1, 4, uint64_t{1} << 40},
                   {50, -1.0f, -1.5f, 0.5f, 60, 61, (uint64_t{1} << 50) + 1}};
  out.raw_top = {{7, 3.5f, 0}, {8, 2.5f, 1}};
  out.reported = {{99, -4.0f, 98}};
  out.summary.num_top = 2;
  out.summary.num_perturbed = 2;
  out.summary.num_raw_top = 2;
  out.summary.num_reported = 1;
  out.summary.num_in_row = 90;
  out.summary.first_nonfinite = -1;
  out.summary.row_max = 3.25f;
  out.summary.next_perturbed = 0.25f;
  out.summary.total_weight = (uint64_t{1} << 55) + 3;
  out.summary.top_k_weight = (uint64_t{1} << 54) + 5;
  out.summary.raw_max = 3.5f;
  out.summary.raw_total = (uint64_t{1} << 41) + 7;
  out.summary.drawn = 9;
  return out;
}

pb::Candidates Message(const Candidates& candidates) {
  pb::Candidates message;
  message.set_drawn(static_cast<uint32_t>(candidates.summary.drawn));
  ToProto(candidates, message.mutable_lists());
  return message;
}

void ExpectEqual(const Candidates& a, const Candidates& b) {
  ASSERT_EQ(a.top.size(), b.top.size());
  for (size_t i = 0; i < a.top.size(); ++i) {
    EXPECT_EQ(a.top[i].id, b.top[i].id);
    EXPECT_EQ(a.top[i].raw, b.top[i].raw);
    EXPECT_EQ(a.top[i].adjusted, b.top[i].adjusted);
    EXPECT_EQ(a.top[i].raw_rank, b.top[i].raw_rank);
  }
  ASSERT_EQ(a.perturbed.size(), b.perturbed.size());
  for (size_t i = 0; i < a.perturbed.size(); ++i) {
    EXPECT_EQ(a.perturbed[i].id, b.perturbed[i].id);
    EXPECT_EQ(a.perturbed[i].raw, b.perturbed[i].raw);
    EXPECT_EQ(a.perturbed[i].adjusted, b.perturbed[i].adjusted);
    EXPECT_EQ(a.perturbed[i].perturbed, b.perturbed[i].perturbed);
    EXPECT_EQ(a.perturbed[i].rank, b.perturbed[i].rank);
    EXPECT_EQ(a.perturbed[i].raw_rank, b.perturbed[i].raw_rank);
    EXPECT_EQ(a.perturbed[i].mass_above, b.perturbed[i].mass_above);
  }
  const auto expect_raw = [](const std::vector<kernels::RawEntry>& x,
                             const std::vector<kernels::RawEntry>& y) {
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(x[i].id, y[i].id);
      EXPECT_EQ(x[i].raw, y[i].raw);
      EXPECT_EQ(x[i].raw_rank, y[i].raw_rank);
    }
  };
  expect_raw(a.raw_top, b.raw_top);
  expect_raw(a.reported, b.reported);
  EXPECT_EQ(a.summary.num_top, b.summary.num_top);
  EXPECT_EQ(a.summary.num_perturbed, b.summary.num_perturbed);
  EXPECT_EQ(a.summary.num_raw_top, b.summary.num_raw_top);
  EXPECT_EQ(a.summary.num_reported, b.summary.num_reported);
  EXPECT_EQ(a.summary.num_in_row, b.summary.num_in_row);
  EXPECT_EQ(a.summary.first_nonfinite, b.summary.first_nonfinite);
  EXPECT_EQ(a.summary.row_max, b.summary.row_max);
  EXPECT_EQ(a.summary.next_perturbed, b.summary.next_perturbed);
  EXPECT_EQ(a.summary.total_weight, b.summary.total_weight);
  EXPECT_EQ(a.summary.top_k_weight, b.summary.top_k_weight);
  EXPECT_EQ(a.summary.raw_max, b.summary.raw_max);
  EXPECT_EQ(a.summary.raw_total, b.summary.raw_total);
  EXPECT_EQ(a.summary.drawn, b.summary.drawn);
}

TEST(CandidatesCodec, EveryFieldComesBack) {
  const Candidates sent = SomeCandidates();
  pb::Candidates wire;
  ASSERT_TRUE(wire.ParseFromString(Message(sent).SerializeAsString()));
  const absl::StatusOr<Candidates> received = FromProto(wire, kVocab);
  ASSERT_TRUE(received.ok()) << received.status();
  ExpectEqual(sent, *received);
}

TEST(CandidatesCodec, WithoutARawPartRanksReadAsAbsent) {
  Candidates sent = SomeCandidates();
  sent.raw_top.clear();
  sent.reported.clear();
  sent.summary.raw_total = 0;
  const pb::Candidates message = Message(sent);
  EXPECT_FALSE(message.lists().has_raw());
  const absl::StatusOr<Candidates> received = FromProto(message, kVocab);
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->top[0].raw_rank, -1);
  EXPECT_EQ(received->perturbed[1].raw_rank, -1);
  EXPECT_EQ(received->summary.raw_total, 0u);
}

TEST(CandidatesCodec, ARowWithNoIdInItAndNoDrawComesBack) {
  Candidates sent;
  sent.summary.first_nonfinite = -1;
  sent.summary.next_perturbed = -kInfinity;
  sent.summary.row_max = -kInfinity;
  pb::Candidates message;
  ToProto(sent, message.mutable_lists());
  const absl::StatusOr<Candidates> received = FromProto(message, kVocab);
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->summary.num_in_row, 0);
  EXPECT_EQ(received->summary.drawn, -1);
}

struct Damage {
  const char* field;  // that the error names
  void (*apply)(pb::Candidates*);
};

TEST(CandidatesCodec, RefusesWhatAnHonestWorkerCannotSend) {
  const Damage cases[] = {
      {"no lists", [](pb::Candidates* c) { c->clear_lists(); }},
      {"drawn", [](pb::Candidates* c) { c->set_drawn(kVocab); }},
      {"top_raw", [](pb::Candidates* c) { c->mutable_lists()->add_top_raw(1); }},
      {"top_adjusted", [](pb::Candidates* c) { c->mutable_lists()->clear_top_adjusted(); }},
      {"top_ids", [](pb::Candidates* c) { c->mutable_lists()->set_top_ids(0, 0xffffffff); }},
      {"top_raw", [](pb::Candidates* c) { c->mutable_lists()->set_top_raw(0, kNan); }},
      {"top_adjusted",
       [](pb::Candidates* c) { c->mutable_lists()->set_top_adjusted(1, kInfinity); }},
      {"perturbed_raw", [](pb::Candidates* c) { c->mutable_lists()->clear_perturbed_raw(); }},
      {"perturbed_adjusted",
       [](pb::Candidates* c) { c->mutable_lists()->add_perturbed_adjusted(0); }},
      {"perturbed_values", [](pb::Candidates* c) { c->mutable_lists()->clear_perturbed_values(); }},
      {"perturbed_values",
       [](pb::Candidates* c) { c->mutable_lists()->set_perturbed_values(0, kNan); }},
      {"perturbed_ranks", [](pb::Candidates* c) { c->mutable_lists()->clear_perturbed_ranks(); }},
      {"perturbed_ranks",
       [](pb::Candidates* c) { c->mutable_lists()->set_perturbed_ranks(0, 90); }},
      {"perturbed_mass_above",
       [](pb::Candidates* c) { c->mutable_lists()->add_perturbed_mass_above(1); }},
      {"perturbed_ids",
       [](pb::Candidates* c) { c->mutable_lists()->set_perturbed_ids(1, kVocab); }},
      {"num_in_row", [](pb::Candidates* c) { c->mutable_lists()->set_num_in_row(-1); }},
      {"num_in_row", [](pb::Candidates* c) { c->mutable_lists()->set_num_in_row(kVocab + 1); }},
      {"top_ids", [](pb::Candidates* c) { c->mutable_lists()->set_num_in_row(1); }},
      {"next_perturbed",
       [](pb::Candidates* c) { c->mutable_lists()->set_next_perturbed(kInfinity); }},
      {"row_max", [](pb::Candidates* c) { c->mutable_lists()->set_row_max(kNan); }},
      {"top_raw_ranks",
       [](pb::Candidates* c) { c->mutable_lists()->mutable_raw()->clear_top_raw_ranks(); }},
      {"perturbed_raw_ranks",
       [](pb::Candidates* c) {
         c->mutable_lists()->mutable_raw()->set_perturbed_raw_ranks(0, kVocab);
       }},
      {"raw.values", [](pb::Candidates* c) { c->mutable_lists()->mutable_raw()->add_values(1); }},
      {"raw.ids",
       [](pb::Candidates* c) {
         for (int i = 0; i < kernels::kMaxRawTop; ++i)
           c->mutable_lists()->mutable_raw()->add_ids(1);
       }},
      {"reported_values",
       [](pb::Candidates* c) { c->mutable_lists()->mutable_raw()->clear_reported_values(); }},
      {"reported_ranks",
       [](pb::Candidates* c) { c->mutable_lists()->mutable_raw()->add_reported_ranks(1); }},
      {"raw.max", [](pb::Candidates* c) { c->mutable_lists()->mutable_raw()->set_max(kNan); }},
      {"raw.total_weight",
       [](pb::Candidates* c) { c->mutable_lists()->mutable_raw()->set_total_weight(0); }},
  };
  for (const Damage& damage : cases) {
    pb::Candidates message = Message(SomeCandidates());
    damage.apply(&message);
    const absl::Status status = FromProto(message, kVocab).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << damage.field << ": " << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(damage.field));
  }
}

TEST(CandidatesCodec, TakesListsUpToTheHardLimitsAndNotOneMore) {
  constexpr int32_t kLargeVocab = 5000;
  pb::Lists lists;
  lists.set_num_in_row(kLargeVocab);
  const auto grow = [&](int count) {
    while (lists.top_ids_size() < count) {
      lists.add_top_ids(static_cast<uint32_t>(lists.top_ids_size()));
      lists.add_top_raw(0);
      lists.add_top_adjusted(0);
    }
  };
  grow(kernels::kMaxTop);
  EXPECT_TRUE(FromProto(lists, kLargeVocab).ok());
  grow(kernels::kMaxTop + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(lists, kLargeVocab).status()));
}

TEST(DrawCodec, EveryParameterComesBack) {
  SamplingParameters sent;
  sent.temperature = 0.75f;
  sent.top_k = 40;
  sent.top_p = 0.0f;
  sent.min_p = 0.125f;
  sent.repetition_penalty = 1.25f;
  sent.presence_penalty = -0.5f;
  sent.frequency_penalty = 0.25f;
  sent.repetition_window = 20;
  sent.presence_window = 21;
  sent.frequency_window = 22;
  sent.seed = 0xfedcba9876543210u;
  sent.min_tokens = 3;
  sent.logit_bias = {{5, 1.5f}, {6, -2.5f}};
  sent.allowed_ids = {5, 6, 7};
  sent.banned_ids = {8};
  sent.end_ids = {2, 3};
  sent.want_raw = true;
  sent.num_raw_top = 4;
  sent.report_ids = {9, 10};
  sent.num_top = 30;
  sent.num_perturbed = 9;
  pb::DrawParameters message;
  ToProto(sent, &message);
  const absl::StatusOr<SamplingParameters> received = FromProto(message);
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->temperature, sent.temperature);
  EXPECT_EQ(received->top_k, sent.top_k);
  EXPECT_EQ(received->top_p, 0.0f) << "zero is not absent";
  EXPECT_EQ(received->min_p, sent.min_p);
  EXPECT_EQ(received->repetition_penalty, sent.repetition_penalty);
  EXPECT_EQ(received->presence_penalty, sent.presence_penalty);
  EXPECT_EQ(received->frequency_penalty, sent.frequency_penalty);
  EXPECT_EQ(received->repetition_window, sent.repetition_window);
  EXPECT_EQ(received->presence_window, sent.presence_window);
  EXPECT_EQ(received->frequency_window, sent.frequency_window);
  EXPECT_EQ(received->seed, sent.seed);
  EXPECT_EQ(received->min_tokens, sent.min_tokens);
  EXPECT_EQ(received->logit_bias, sent.logit_bias);
  EXPECT_EQ(received->allowed_ids, sent.allowed_ids);
  EXPECT_EQ(received->banned_ids, sent.banned_ids);
  EXPECT_EQ(received->end_ids, sent.end_ids);
  EXPECT_EQ(received->want_raw, sent.want_raw);
  EXPECT_EQ(received->num_raw_top, sent.num_raw_top);
  EXPECT_EQ(received->report_ids, sent.report_ids);
  EXPECT_EQ(received->num_top, sent.num_top);
  EXPECT_EQ(received->num_perturbed, sent.num_perturbed);
}

TEST(DrawCodec, AbsentParametersMeanTheirDefaults) {
  const absl::StatusOr<SamplingParameters> received = FromProto(pb::DrawParameters());
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->top_p, 1.0f);
  EXPECT_EQ(received->repetition_penalty, 1.0f);
}

TEST(DrawCodec, RefusesABiasWithoutItsId) {
  pb::DrawParameters message;
  message.add_bias_values(1.0f);
  const absl::Status status = FromProto(message).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(MessageOf(status), HasSubstr("bias_values"));
}

TEST(TokenCodec, AnIdBeyondInt32IsInNoVocabulary) {
  google::protobuf::RepeatedField<uint32_t> wire;
  TokensToProto(std::vector<int32_t>{0, 5, INT32_MAX}, &wire);
  wire.Add(0x80000000u);
  wire.Add(0xffffffffu);
  EXPECT_THAT(TokensFromProto(wire), ElementsAre(0, 5, INT32_MAX, INT32_MAX, INT32_MAX));
}

TokenizerData SomeTokenizer() {
  TokenizerData data;
  data.pre_tokenizer = "smollm";
  data.tokens = {"<|end|>", "a", "\xff\xfe", "ab"};
  data.types = {TokenType::kControl, TokenType::kNormal, TokenType::kUnused, TokenType::kNormal};
  data.merges = {"a b"};
  data.added_tokens = {{0, "<|end|>", true, true, false, true, false}};
  data.sentencepiece_model = std::string("\0\1", 2);
  data.bos_id = 0;
  data.eos_id = 0;
  data.unknown_id = -1;
  data.padding_id = 2;
  data.add_bos = true;
  data.add_space_prefix = true;
  data.end_ids = {0, 3};
  data.chat_template = "{{ x }}";
  return data;
}

TEST(TokenizerCodec, EveryFieldComesBackAsBytes) {
  const TokenizerData sent = SomeTokenizer();
  pb::TokenizerData message;
  ToProto(sent, &message);
  pb::TokenizerData wire;
  ASSERT_TRUE(wire.ParseFromString(message.SerializeAsString()));
  const absl::StatusOr<TokenizerData> received = FromProto(wire);
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->kind, sent.kind);
  EXPECT_EQ(received->pre_tokenizer, sent.pre_tokenizer);
  EXPECT_EQ(received->tokens, sent.tokens);
  EXPECT_EQ(received->types, sent.types);
  EXPECT_EQ(received->merges, sent.merges);
  ASSERT_EQ(received->added_tokens.size(), 1u);
  EXPECT_EQ(received->added_tokens[0].content, "<|end|>");
  EXPECT_TRUE(received->added_tokens[0].special);
  EXPECT_TRUE(received->added_tokens[0].lstrip);
  EXPECT_FALSE(received->added_tokens[0].rstrip);
  EXPECT_TRUE(received->added_tokens[0].single_word);
  EXPECT_FALSE(received->added_tokens[0].normalized);
  EXPECT_EQ(received->sentencepiece_model, sent.sentencepiece_model);
  EXPECT_EQ(received->bos_id, 0);
  EXPECT_EQ(received->eos_id, 0);
  EXPECT_EQ(received->unknown_id, -1);
  EXPECT_EQ(received->padding_id, 2);
  EXPECT_TRUE(received->add_bos);
  EXPECT_FALSE(received->add_eos);
  EXPECT_TRUE(received->add_space_prefix);
  EXPECT_EQ(received->end_ids, sent.end_ids);
  EXPECT_EQ(received->chat_template, sent.chat_template);
}

TEST(TokenizerCodec, RefusesAnotherVersionKindOrBrokenTypes) {
  pb::TokenizerData good;
  ToProto(SomeTokenizer(), &good);
  pb::TokenizerData message = good;
  message.set_version(2);
  EXPECT_TRUE(absl::IsUnimplemented(FromProto(message).status()));
  message = good;
  message.set_kind(pb::TOKENIZER_KIND_UNSPECIFIED);
  EXPECT_TRUE(absl::IsUnimplemented(FromProto(message).status()));
  message = good;
  message.mutable_types()->pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(message).status()));
  message = good;
  (*message.mutable_types())[0] = 7;
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(message).status()));
  message = good;
  message.set_bos_id(-2);
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(message).status()));
  message = good;
  message.set_end_ids(0, -1);
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(message).status()));
  message = good;
  message.mutable_added_tokens(0)->set_id(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(message).status()));
}

TEST(DefinedBits, LeaveOutHolesUnusedIdsAndWhatIsBehindTheList) {
  TokenizerData data = SomeTokenizer();
  data.tokens[1] = "";
  EXPECT_THAT(DefinedBits(data, 40), ElementsAre(0b1001u, 0u));
}

TEST(DefinedBits, AreAllOnesWhereTheDataListsNoTokens) {
  EXPECT_THAT(DefinedBits(TokenizerData(), 33), ElementsAre(0xffffffffu, 1u));
}

TEST(CloseReasons, ComeBackAndUnknownOnesAreFaults) {
  using Reason = ClosedEvent::Reason;
  for (Reason reason : {Reason::kDone, Reason::kPreempted, Reason::kDraining, Reason::kExpired,
                        Reason::kRefused, Reason::kNonFinite, Reason::kFault}) {
    EXPECT_EQ(FromProto(ToProto(reason)), reason);
  }
  EXPECT_EQ(FromProto(static_cast<pb::CloseReason>(99)), Reason::kFault);
  EXPECT_EQ(FromProto(pb::CLOSE_REASON_UNSPECIFIED), Reason::kFault);
}

TEST(DurationCodec, ComesBackAndStopsAtTheEndsOfTheClock) {
  google::protobuf::Duration message;
  ToProto(3 * kNanosPerSecond + 4, &message);
  EXPECT_EQ(message.seconds(), 3);
  EXPECT_EQ(message.nanos(), 4);
  EXPECT_EQ(FromProto(message), 3 * kNanosPerSecond + 4);
  message.set_seconds(-3);
  message.set_nanos(-4);
  EXPECT_EQ(FromProto(message), -3 * kNanosPerSecond - 4);
  message.set_seconds(9'223'372'036);
  message.set_nanos(854'775'807);
  EXPECT_EQ(FromProto(message), std::numeric_limits<Nanos>::max());
  message.set_nanos(854'775'808);
  EXPECT_EQ(FromProto(message), std::numeric_limits<Nanos>::max());
  message.set_seconds(std::numeric_limits<int64_t>::min());
  EXPECT_EQ(FromProto(message), std::numeric_limits<Nanos>::min());
}

TEST(LoadCodec, CarriesEveryNumberAndSplitsTheStepTimeIntoSecondsAndNanos) {
  EngineLoad load;
  load.running = 3;
  load.queued = 4;
  load.free_pages = 5;
  load.total_pages = 6;
  load.queued_prefill_tokens = 7;
  load.steps = 8;
  load.last_step_nanos = 2 * kNanosPerSecond + 9;
  load.cached_pages = 10;
  load.prefilled_tokens = 11;
  load.reused_tokens = 12;
  load.evicted_pages = 13;
  load.preempted = 14;
  load.drafted_tokens = 15;
  load.taken_drafts = 16;
  pb::Load message;
  ToProto(load, &message);
  EXPECT_EQ(message.running(), 3);
  EXPECT_EQ(message.queued(), 4);
  EXPECT_EQ(message.free_pages(), 5);
  EXPECT_EQ(message.total_pages(), 6);
  EXPECT_EQ(message.queued_prefill_tokens(), 7);
  EXPECT_EQ(message.step(), 8);
  EXPECT_EQ(message.step_time().seconds(), 2);
  EXPECT_EQ(message.step_time().nanos(), 9);
  EXPECT_EQ(message.cached_pages(), 10);
  EXPECT_EQ(message.prefilled_tokens(), 11);
  EXPECT_EQ(message.reused_tokens(), 12);
  EXPECT_EQ(message.evicted_pages(), 13);
  EXPECT_EQ(message.preempted(), 14);
  EXPECT_EQ(message.drafted_tokens(), 15);
  EXPECT_EQ(message.taken_drafts(), 16);
}

}  // namespace
}  // namespace tandem
