// How sessions decide: lists, wider lists, whole rows; misses, epochs, run-ahead; logprobs; broken
// workers.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

using test::kImEnd;
using test::kRowSize;
using testing::ElementsAre;
using testing::HasSubstr;

class DecisionPathTest : public SessionTest {
 protected:
  // Drawn from a wide kept set, so that short lists often do not decide.
  GenerationRequest HotRequest() {
    GenerationRequest request = Request();
    request.sampling.temperature = 2.0f;
    request.sampling.min_p = 0.05f;
    request.sampling.seed = 11;
    request.sampling.num_top = 2;
    request.sampling.num_perturbed = 1;
    request.ignore_eos = true;
    request.max_tokens = 40;
    return request;
  }
};

TEST_F(DecisionPathTest, FetchesWiderListsWhereTheListsDoNotDecide) {
  const GenerationRequest request = HotRequest();
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_EQ(talk.choice().token_ids, TokensByRows(request, 0, 40));
  const v1::Counters& counters = talk.finished().counters();
  EXPECT_GT(counters.fetched(), 0);
  EXPECT_GT(counters.from_lists(), 0);
  EXPECT_EQ(counters.fetched() + counters.from_lists(), 40);
  EXPECT_EQ(counters.misses() + counters.faults() + counters.rewound(), 0);
}

TEST_F(DecisionPathTest, FetchesDoubleThePerturbedListThenTheTopListThenTakeTheRow) {
  GenerationRequest request = HotRequest();
  // 80 of 265 ids are kept, about evenly: one or two perturbed entries often miss them all, and a
  // top list below 80 is no help.
  request.sampling.temperature = 100.0f;
  request.sampling.min_p = 0.0f;
  request.sampling.top_k = 80;
  request.sampling.num_top = 1;
  auto limited = std::make_shared<ServedModel>(*request.model);
  limited->limits.max_top = 6;
  limited->limits.max_perturbed = 2;
  request.model = limited;
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_EQ(talk.choice().token_ids, TokensByRows(request, 0, 40));
  std::map<int32_t, std::vector<std::string>> by_position;
  for (const decode::v1::Command& command : talk.sent) {
    if (!command.has_fetch()) continue;
    const decode::v1::Fetch& fetch = command.fetch();
    by_position[fetch.position()].push_back(fetch.has_row()
                                                ? "row"
                                                : std::to_string(fetch.more().num_top()) + "," +
                                                      std::to_string(fetch.more().num_perturbed()));
  }
  int short_ones = 0, rows = 0;
  for (const auto& [position, fetches] : by_position) {
    if (fetches.size() == 1) {
      EXPECT_THAT(fetches, ElementsAre("1,2"));
      ++short_ones;
    } else {
      EXPECT_THAT(fetches, ElementsAre("1,2", "2,2", "4,2", "6,2", "row"));
      ++rows;
    }
  }
  EXPECT_GT(short_ones, 0);
  EXPECT_GT(rows, 0);
}

TEST_F(DecisionPathTest, TakesTheWholeRowWhereTheWorkersLimitsEnd) {
  GenerationRequest request = HotRequest();
  auto limited = std::make_shared<ServedModel>(*request.model);
  limited->limits.max_top = 2;
  limited->limits.max_perturbed = 1;
  request.model = limited;
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_EQ(talk.choice().token_ids, TokensByRows(request, 0, 40));
  EXPECT_GT(talk.finished().counters().fetched(), 0);
  int rows = 0;
  for (const decode::v1::Command& command : talk.sent) {
    EXPECT_FALSE(command.has_fetch() && command.fetch().has_more());
    rows += command.has_fetch() && command.fetch().has_row();
  }
  EXPECT_EQ(rows, talk.finished().counters().fetched());
}

TEST_F(DecisionPathTest, AFaultyEntryIsCountedAndRowsDecideFromThereOn) {
  for (const int32_t run_ahead : {0, 3}) {
    int sent = 0;
    decoder.options().tamper = [&sent](decode::v1::Candidates* message) {
      if (++sent % 3 == 0) {
        auto* adjusted = message->mutable_lists()->mutable_top_adjusted();
        adjusted->Set(1, adjusted->Get(1) + 0.125f);
      }
    };
    GenerationRequest request = Request();
    request.sampling.temperature = 1.0f;
    request.ignore_eos = true;
    request.max_tokens = 9;
    request.run_ahead = run_ahead;
    const GenerationRequest copy = request;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    EXPECT_EQ(talk.choice().token_ids, TokensByRows(copy, 0, 9));
    EXPECT_EQ(talk.finished().counters().faults(), 1);
    EXPECT_EQ(talk.finished().counters().from_lists(), 2);
    EXPECT_EQ(talk.finished().counters().fetched(), 7);
    EXPECT_EQ(talk.finished().counters().misses(), 0);
    decoder.Reset();
  }
}

TEST_F(DecisionPathTest, ALieInAnyFieldOfTheListsIsFoundOutAndTheRowsDecide) {
  const auto off = [](auto* values, int i, auto by) { values->Set(i, values->Get(i) + by); };
  const auto other = [](auto* ids, int i) { ids->Set(i, ids->Get(i) ^ 1u); };
  const std::function<void(decode::v1::Lists*)> lies[] = {
      [&](auto* m) { other(m->mutable_top_ids(), 0); },
      [&](auto* m) { off(m->mutable_top_raw(), 1, 0.5f); },
      [&](auto* m) { off(m->mutable_top_adjusted(), 1, -0.001f); },
      [&](auto* m) { other(m->mutable_perturbed_ids(), 2); },
      [&](auto* m) { off(m->mutable_perturbed_raw(), 0, 0.5f); },
      [&](auto* m) { off(m->mutable_perturbed_adjusted(), 0, 0.5f); },
      [&](auto* m) { off(m->mutable_perturbed_values(), 7, -0.001f); },
      [&](auto* m) { other(m->mutable_perturbed_ranks(), 0); },
      [&](auto* m) { off(m->mutable_perturbed_mass_above(), 0, uint64_t{1} << 41); },
      [](auto* m) { m->set_next_perturbed(m->perturbed_values(6)); },
      [](auto* m) { m->set_row_max(m->row_max() + 1.0f); },
      [](auto* m) { m->set_num_in_row(m->num_in_row() - 1); },
      [](auto* m) { m->set_total_weight(m->total_weight() * 2); },
      [](auto* m) { m->set_top_k_weight(m->top_k_weight() + 1); },
  };
  GenerationRequest request = Request();
  request.sampling.temperature = 1.0f;
  request.sampling.repetition_penalty = 1.2f;
  request.ignore_eos = true;
  request.max_tokens = 6;
  const std::vector<int32_t> tokens = TokensByRows(request, 0, 6);
  for (size_t i = 0; i < std::size(lies); ++i) {
    int sent = 0;
    decoder.options().tamper = [&](decode::v1::Candidates* message) {
      if (++sent == 3) lies[i](message->mutable_lists());
    };
    Conversation talk(&decoder, request);
    talk.Run();
    EXPECT_EQ(talk.choice().token_ids, tokens) << "lie " << i;
    EXPECT_EQ(talk.finished().counters().faults(), 1) << "lie " << i;
    EXPECT_EQ(talk.finished().counters().from_lists(), 2) << "lie " << i;
    EXPECT_EQ(talk.finished().counters().fetched(), 4) << "lie " << i;
    decoder.Reset();
  }
}

TEST_F(DecisionPathTest, AMissIsCountedAndCutsUnderTheNextEpoch) {
  for (const int32_t run_ahead : {0, 3}) {
    int sent = 0;
    decoder.options().tamper = [&sent](decode::v1::Candidates* message) {
      if (++sent % 4 == 0) message->set_drawn(message->drawn() == 'q' ? 'r' : 'q');
    };
    GenerationRequest request = Request();
    request.sampling.temperature = 0.8f;
    request.sampling.repetition_penalty = 1.3f;
    request.ignore_eos = true;
    request.max_tokens = 24;
    request.run_ahead = run_ahead;
    const GenerationRequest copy = request;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    EXPECT_EQ(talk.choice().token_ids, TokensByRows(copy, 0, 24)) << "run-ahead " << run_ahead;
    EXPECT_GE(talk.finished().counters().misses(), 5);
    uint32_t epoch = 0;
    for (const decode::v1::Command& command : talk.sent) {
      if (!command.has_extend()) continue;
      EXPECT_GE(command.extend().epoch(), epoch);
      EXPECT_LE(command.extend().epoch(), epoch + 1);
      epoch = command.extend().epoch();
    }
    EXPECT_EQ(static_cast<int32_t>(epoch), talk.finished().counters().rewound());
    decoder.Reset();
  }
}

TEST_F(DecisionPathTest, AnAbsentDrawIsNoMiss) {
  decoder.options().tamper = [](decode::v1::Candidates* message) { message->clear_drawn(); };
  GenerationRequest request = Request();
  request.max_tokens = 5;
  request.ignore_eos = true;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(talk.finished().counters().misses(), 0);
  EXPECT_EQ(talk.finished().counters().rewound(), 0);
}

// Random parameters, run-ahead and list sizes: the tokens are those of whole rows, always.
TEST_F(DecisionPathTest, AnyParametersAndAnyRunAheadGiveTheTokensOfWholeRows) {
  uint64_t state = 1;
  const auto random = [&state](uint64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % limit;
  };
  for (int trial = 0; trial < 60; ++trial) {
    GenerationRequest request = Request();
    SamplingParameters& s = request.sampling;
    s.temperature = random(4) == 0 ? 0.0f : 0.3f + 0.2f * static_cast<float>(random(10));
    s.top_k = random(2) == 0 ? 0 : static_cast<int32_t>(1 + random(60));
    s.top_p = random(2) == 0 ? 1.0f : 0.1f * static_cast<float>(1 + random(9));
    s.min_p = random(3) == 0 ? 0.02f * static_cast<float>(random(10)) : 0.0f;
    s.repetition_penalty = random(2) == 0 ? 1.0f : 1.2f;
    s.presence_penalty = random(2) == 0 ? 0.0f : 0.5f;
    s.frequency_penalty = random(2) == 0 ? 0.0f : 0.25f;
    s.repetition_window = static_cast<int32_t>(random(20));
    s.frequency_window = static_cast<int32_t>(random(6));
    s.logit_bias = {{'a', 2.0f}, {'b', -3.0f}};
    s.banned_ids = {'e', kImEnd};
    s.seed = random(1000);
    s.num_top = static_cast<int32_t>(1 + random(20));
    s.num_perturbed = static_cast<int32_t>(1 + random(8));
    request.choices = static_cast<int32_t>(1 + random(3));
    request.run_ahead = static_cast<int32_t>(random(5));
    request.ignore_eos = true;
    request.max_tokens = 25;
    const GenerationRequest copy = request;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    for (int32_t i = 0; i < copy.choices; ++i) {
      ASSERT_EQ(talk.choice(i).token_ids, TokensByRows(copy, i, 25)) << "trial " << trial;
      ASSERT_EQ(talk.finished(i).counters().misses(), 0) << "trial " << trial;
      ASSERT_EQ(talk.finished(i).counters().faults(), 0) << "trial " << trial;
    }
    decoder.Reset();
  }
}

TEST_F(DecisionPathTest, B045_LogprobsAreThoseOfTheRawRowAndFinite) {
  for (const bool by_row : {false, true}) {
    if (by_row) {
      decoder.options().tamper = [](decode::v1::Candidates* message) {
        message->mutable_lists()->mutable_top_adjusted()->Set(0,
                                                              99.0f);  // a fault: the row decides
      };
    }
    GenerationRequest request = Request();
    request.sampling.temperature = 1.0f;
    request.sampling.top_k = 1;
    request.sampling.repetition_penalty = 1.5f;
    request.sampling.want_raw = true;
    request.sampling.num_raw_top = 3;
    request.sampling.report_ids = {7, 200};
    request.logprobs = true;
    request.ignore_eos = true;
    request.max_tokens = 8;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    ASSERT_EQ(talk.choice().logprobs.size(), 8u);
    std::vector<int32_t> tokens = BytesAsTokens(kPrompt);
    for (size_t i = 0; i < 8; ++i) {
      const std::vector<float> row = decoder.options().rows(tokens);
      double total = 0.0;
      for (const float logit : row) total += std::exp(static_cast<double>(logit));
      const auto check = [&](const v1::TokenLogprob& got) {
        EXPECT_NEAR(got.logprob(), row[got.id()] - std::log(total), 1e-4);
        int32_t rank = 0;
        for (int32_t id = 0; id < kRowSize; ++id) {
          rank += row[id] > row[got.id()] || (row[id] == row[got.id()] && id < got.id());
        }
        EXPECT_EQ(got.rank(), rank);
      };
      const v1::PositionLogprobs& logprobs = talk.choice().logprobs[i];
      EXPECT_EQ(logprobs.chosen().id(), talk.choice().token_ids[i]);
      check(logprobs.chosen());
      ASSERT_EQ(logprobs.top_size(), 3);
      for (int32_t rank = 0; rank < 3; ++rank) {
        check(logprobs.top(rank));
        EXPECT_EQ(logprobs.top(rank).rank(), rank);
      }
      ASSERT_EQ(logprobs.reported_size(), 2);
      EXPECT_EQ(logprobs.reported(1).id(), 200);
      check(logprobs.reported(0));
      check(logprobs.reported(1));
      tokens.push_back(talk.choice().token_ids[i]);
    }
    decoder.Reset();
  }
}

TEST_F(DecisionPathTest, B051_ARowThatIsNotFiniteEndsTheRequestAndStreamsNothingOfIt) {
  decoder.options().rows = [](std::span<const int32_t> tokens) {
    std::vector<float> row = test::HashRows(kRowSize)(tokens);
    if (tokens.size() == 6) row[9] = std::numeric_limits<float>::quiet_NaN();
    return row;
  };
  GenerationRequest request = Request();
  request.ignore_eos = true;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(talk.choice().token_ids.size(), 2u);
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_ERROR);
  EXPECT_THAT(talk.finished().error(), HasSubstr("not finite"));
  EXPECT_TRUE(absl::IsInternal(talk.session().FinalStatus()));
}

TEST_F(DecisionPathTest, B051_AFetchedRowThatIsNotFiniteEndsTheRequestToo) {
  decoder.options().tamper = [](decode::v1::Candidates* message) {
    message->mutable_lists()->mutable_top_adjusted()->Set(0, 99.0f);
  };
  GenerationRequest request = Request();
  request.ignore_eos = true;
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  talk.Step();
  talk.Step();  // the fault: the row is asked for and waits
  ASSERT_TRUE(talk.events.front().has_fetched());
  talk.events.front().mutable_fetched()->mutable_values()->set_values(
      3, std::numeric_limits<float>::infinity());
  talk.Continue();
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_ERROR);
  EXPECT_THAT(talk.choice().token_ids, ElementsAre());
}

TEST_F(DecisionPathTest, ARowWithoutAnAllowedIdEndsTheRequestWithAReason) {
  GenerationRequest request = Request();
  request.sampling.allowed_ids = {kImEnd};
  request.sampling.min_tokens = 2;
  request.sampling.end_ids = {kImEnd};
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_ERROR);
  EXPECT_THAT(talk.finished().error(),
              HasSubstr("no token is allowed at position 4: sampling.allowed_ids and min_tokens "
                        "leave none"));
  EXPECT_TRUE(absl::IsInvalidArgument(talk.session().FinalStatus()));
}

// Each way of breaking the protocol costs the session, and says how.
TEST_F(DecisionPathTest, AWorkerThatBreaksTheProtocolCostsItsSessionOnly) {
  struct Case {
    std::function<void(decode::v1::Candidates*)> tamper;
    const char* error;
  };
  const Case cases[] = {
      {[](auto* m) { m->set_position(m->position() + 1); }, "the next is 4"},
      {[](auto* m) { m->set_epoch(3); }, "epoch 3 in epoch 0"},
      {[](auto* m) { m->mutable_lists()->add_top_ids(1); }, "top"},
      {[](auto* m) { m->mutable_lists()->set_top_ids(0, kRowSize); }, "top_ids"},
  };
  for (const Case& c : cases) {
    decoder.options().tamper = c.tamper;
    Conversation talk(&decoder, Request());
    talk.Run();
    EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_ERROR);
    EXPECT_THAT(talk.finished().error(), HasSubstr(c.error));
    EXPECT_TRUE(absl::IsInternal(talk.session().FinalStatus()));
    EXPECT_THAT(decoder.live(), ElementsAre()) << "and it is closed";
    decoder.Reset();
  }
}

}  // namespace
}  // namespace tandem::text
