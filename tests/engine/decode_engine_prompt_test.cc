// Logprobs of a prompt: of every position once, the numbers of its full row, and nothing else
// changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/draw/order.h"
#include "tests/engine/decode_engine_harness.h"

namespace tandem::test {
namespace {

using kernels::RawEntry;
using Reason = ClosedEvent::Reason;

// What came for one position.
struct Line {
  RawEntry token;
  std::vector<RawEntry> raw_top, reported;
  float raw_max = 0.0f;
  uint64_t raw_total = 0;
};

bool operator==(const RawEntry& a, const RawEntry& b) {
  return a.id == b.id && std::memcmp(&a.raw, &b.raw, sizeof(float)) == 0 &&
         a.raw_rank == b.raw_rank;
}

bool SameLine(const Line& a, const Line& b) {
  const auto same = [](const std::vector<RawEntry>& x, const std::vector<RawEntry>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const RawEntry& p, const RawEntry& q) { return p == q; });
  };
  return a.token == b.token && same(a.raw_top, b.raw_top) && same(a.reported, b.reported) &&
         std::memcmp(&a.raw_max, &b.raw_max, sizeof(float)) == 0 && a.raw_total == b.raw_total;
}

// The events of one handle in a row, from position `first` on without a gap.
std::vector<Line> LinesOf(const std::vector<PromptLogprobsEvent>& events, int32_t first) {
  std::vector<Line> lines;
  for (const PromptLogprobsEvent& event : events) {
    const PromptLogprobs& part = event.logprobs;
    EXPECT_EQ(part.position, first + static_cast<int32_t>(lines.size()));
    EXPECT_GE(part.size(), 1);
    EXPECT_LE(part.size(), kMaxPromptLogprobs);
    for (int32_t i = 0; i < part.size(); ++i) {
      const auto slice = [i](const std::vector<RawEntry>& all, int32_t count) {
        return std::vector<RawEntry>(all.begin() + i * count, all.begin() + (i + 1) * count);
      };
      lines.push_back({part.tokens[i], slice(part.raw_top, part.num_raw_top),
                       slice(part.reported, part.num_reported), part.raw_max[i],
                       part.raw_total[i]});
    }
  }
  return lines;
}

OpenCommand PromptOpen(uint64_t number, const std::vector<int32_t>& tokens, int32_t raw_top,
                       std::vector<int32_t> report_ids = {}) {
  OpenCommand open;
  open.first = {0, number};
  open.tokens = tokens;
  open.prompt_length = static_cast<int32_t>(tokens.size());
  open.max_new = 20;
  open.sampling.want_raw = !report_ids.empty();
  open.sampling.report_ids = std::move(report_ids);
  open.prompt_logprobs_from = 1;
  open.prompt_raw_top = raw_top;
  return open;
}

std::vector<Line> Alone(const TinyWorld& world, const EngineOptions& options,
                        const OpenCommand& open) {
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(options);
  Peer peer(*engine);
  peer.Open(open);
  peer.Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(open.first.number).size(), 1u);
  EXPECT_EQ(peer.Last<OpenedEvent>(open.first.number).cached_tokens, 0);
  engine->Close({open.first}, 1);
  EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  return LinesOf(peer.All<PromptLogprobsEvent>(open.first.number), 1);
}

// Runs it until it is idle, also what was in flight.
void Finish(DecodeEngine& engine) {
  for (bool runs = true; runs;) {
    runs = engine.Launch(1);
    runs |= *engine.Collect(1);
  }
}

void ExpectSameLines(const std::vector<Line>& got, const std::vector<Line>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(SameLine(got[i], want[i])) << "line " << i;
}

// Rows of every position but the last, computed without an engine.
std::vector<std::vector<float>> Rows(const TinyWorld& world, const std::vector<int32_t>& tokens) {
  ModelRunner::Options options;
  options.max_logits_rows = 256;
  auto runner = ModelRunner::Make(options, *world.model, *world.ops);
  EXPECT_TRUE(runner.ok());
  auto rows = (*runner)->Run(0, std::span(tokens).first(tokens.size() - 1), 256,
                             static_cast<int32_t>(tokens.size()) - 1);
  EXPECT_TRUE(rows.ok()) << rows.status().ToString();
  return *std::move(rows);
}

double Logprob(const std::vector<float>& row, int32_t id) {
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0.0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - largest);
  return row[id] - largest - std::log(sum);
}

void ExpectEntry(const RawEntry& got, const std::vector<float>& row, const Line& line) {
  ASSERT_GE(got.id, 0);
  EXPECT_EQ(got.raw, row[got.id]);
  int32_t rank = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(row.size()); ++id) {
    rank += kernels::ComesBefore(row[id], id, row[got.id], got.id) ? 1 : 0;
  }
  EXPECT_EQ(got.raw_rank, rank) << "id " << got.id;
  kernels::RowSummary summary{};
  summary.raw_max = line.raw_max;
  summary.raw_total = line.raw_total;
  EXPECT_NEAR(RawLogprob(got.raw, summary), Logprob(row, got.id), 1e-5);
}

TEST(DecodeEnginePrompt, EveryPositionHasTheSoftmaxOfItsFullRow) {
  for (const bool cpu : {false, true}) {
    const TinyWorld world({.cpu = cpu});
    const int32_t last = world.vocab_size() - 1;
    std::vector<int32_t> tokens = RandomTokens(5, 150, world.vocab_size());
    tokens[70] = 0;
    tokens[71] = last;
    const std::vector<std::vector<float>> rows = Rows(world, tokens);
    const std::vector<Line> lines = Alone(world, {}, PromptOpen(1, tokens, 20, {0, 7, last}));
    ASSERT_EQ(lines.size(), tokens.size() - 1);
    for (size_t i = 0; i < lines.size(); ++i) {
      SCOPED_TRACE("position " + std::to_string(i + 1));
      const Line& line = lines[i];
      EXPECT_EQ(line.token.id, tokens[i + 1]);
      ExpectEntry(line.token, rows[i], line);
      ASSERT_EQ(line.raw_top.size(), 20u);
      for (int32_t rank = 0; rank < 20; ++rank) {
        EXPECT_EQ(line.raw_top[rank].raw_rank, rank);
        ExpectEntry(line.raw_top[rank], rows[i], line);
      }
      ASSERT_EQ(line.reported.size(), 3u);
      EXPECT_EQ(line.reported[2].id, last);
      for (const RawEntry& entry : line.reported) ExpectEntry(entry, rows[i], line);
    }
  }
}

TEST(DecodeEnginePrompt, AnyChunksAndAnyRoomForLogitsGiveTheSameBits) {
  for (const bool cpu : {false, true}) {
    const TinyWorld world({.cpu = cpu});
    // Whole pages, one token less and more.
    for (const int32_t length : {2, 64, 65, 129, 200}) {
      SCOPED_TRACE(length);
      const OpenCommand open = PromptOpen(1, RandomTokens(8, length, world.vocab_size()), 3, {9});
      const std::vector<Line> want = Alone(world, {}, open);
      ASSERT_EQ(want.size(), static_cast<size_t>(length) - 1);
      for (const int32_t step_tokens : {1, 7, 64, 100}) {
        ExpectSameLines(Alone(world, {.step_tokens = step_tokens}, open), want);
      }
      // Two logits rows in all.
      ExpectSameLines(Alone(world, {.max_sessions = 2, .max_drafts = 0}, open), want);
    }
  }
}

TEST(DecodeEnginePrompt, ListsOfNoneAreTheTokensAlone) {
  const TinyWorld& world = PlainWorld();
  const std::vector<int32_t> tokens = RandomTokens(8, 40, world.vocab_size());
  const std::vector<Line> want = Alone(world, {}, PromptOpen(1, tokens, 20));
  const std::vector<Line> lines = Alone(world, {}, PromptOpen(1, tokens, 0));
  ASSERT_EQ(lines.size(), 39u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_TRUE(lines[i].raw_top.empty() && lines[i].reported.empty());
    EXPECT_TRUE(lines[i].token == want[i].token);
    EXPECT_EQ(lines[i].raw_total, want[i].raw_total);
  }
}

// Penalties, bias and bans are of what is drawn, not of these.
TEST(DecodeEnginePrompt, EditsOfTheRowDoNotCount) {
  const TinyWorld& world = PlainWorld();
  OpenCommand open = PromptOpen(1, RandomTokens(8, 40, world.vocab_size()), 5, {3});
  const std::vector<Line> want = Alone(world, {}, open);
  open.sampling.temperature = 0.7f;
  open.sampling.repetition_penalty = 1.5f;
  open.sampling.logit_bias = {{3, 50.0f}};
  open.sampling.banned_ids = {want[0].raw_top[0].id};
  ExpectSameLines(Alone(world, {}, open), want);
}

// Among others that decode, draft, fetch and prefill, with two steps in flight; and the others have
// the candidates that they have without.
TEST(DecodeEnginePrompt, AmongOthersNobodysBitsChange) {
  const TinyWorld world({.cpu = true});
  const EngineOptions options{.max_sessions = 6, .step_tokens = 48, .kv_tokens = 6 * 512};
  std::vector<Request> requests = MixedRequests(4, world.vocab_size());
  for (Request& request : requests) {
    request.run_ahead = 4;
    request.drafts = 4;
  }
  const OpenCommand one = PromptOpen(101, RandomTokens(8, 190, world.vocab_size()), 4, {2});
  const OpenCommand two = PromptOpen(102, RandomTokens(9, 77, world.vocab_size()), 20);
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(options);
  TextTier tier(*engine, world.vocab_size());
  for (const Request& request : requests) tier.Start(request);
  tier.Turn(2);
  engine->Open(one, 1);
  engine->Open(two, 1);
  std::vector<PromptLogprobsEvent> of_one, of_two;
  for (bool runs = true; runs;) {
    runs = engine->Launch(1);
    engine->Launch(1);
    runs |= *engine->Collect(1);
    std::vector<EngineEvent> others;
    for (EngineEvent& event : engine->TakeEvents()) {
      runs = true;
      const uint64_t number = std::visit([](const auto& e) { return e.handle.number; }, event);
      auto* prompt = std::get_if<PromptLogprobsEvent>(&event);
      if (prompt != nullptr) (number == 101 ? of_one : of_two).push_back(std::move(*prompt));
      if (number < 100) others.push_back(std::move(event));
    }
    tier.Handle(std::move(others));
  }
  ExpectSameLines(LinesOf(of_one, 1), Alone(world, {}, one));
  ExpectSameLines(LinesOf(of_two, 1), Alone(world, {}, two));
  for (size_t i = 0; i < requests.size(); ++i) {
    const Outcome want = RunAlone(world, options, requests[i]);
    const Outcome& got = tier.outcome(i + 1);
    EXPECT_EQ(got.output, want.output);
    ASSERT_EQ(got.candidates.size(), want.candidates.size());
    EXPECT_TRUE(SameBits(got.candidates.back(), want.candidates.back()));
  }
  engine->Close({{0, 101}}, 1);
  engine->Close({{0, 102}}, 1);
  EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
}

TEST(DecodeEnginePrompt, TheCandidatesBehindAreThoseOfAnyPrompt) {
  const TinyWorld& world = PlainWorld();
  OpenCommand open = PromptOpen(1, RandomTokens(8, 100, world.vocab_size()), 20);
  std::vector<Candidates> got;
  for (const int32_t from : {0, 1}) {
    open.prompt_logprobs_from = from;
    const std::unique_ptr<DecodeEngine> engine = world.MakeEngine({.step_tokens = 30});
    Peer peer(*engine);
    peer.Open(open);
    peer.Run();
    got.push_back(peer.Last<CandidatesEvent>(1).candidates);
  }
  EXPECT_TRUE(SameBits(got[0], got[1]));
}

TEST(DecodeEnginePrompt, NoPageOfItIsFoundButItLeavesSome) {
  const TinyWorld& world = PlainWorld();
  const std::vector<int32_t> tokens = RandomTokens(8, 200, world.vocab_size());
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine({});
  Peer peer(*engine);
  for (const uint64_t number : {1, 2}) {
    peer.Open(PromptOpen(number, tokens, 1));
    peer.Run();
    EXPECT_EQ(peer.Last<OpenedEvent>(number).cached_tokens, 0);
    EXPECT_EQ(LinesOf(peer.All<PromptLogprobsEvent>(number), 1).size(), 199u);
  }
  peer.Open(3, tokens);
  peer.Run();
  EXPECT_EQ(peer.Last<OpenedEvent>(3).cached_tokens, 192);
  EXPECT_TRUE(peer.All<PromptLogprobsEvent>(3).empty());
}

TEST(DecodeEnginePrompt, OneThatIsOpenedAgainHasTheRestAndFindsWhatIsBeforeIt) {
  const TinyWorld& world = PlainWorld();
  OpenCommand open = PromptOpen(1, RandomTokens(8, 200, world.vocab_size()), 2);
  const std::vector<Line> whole = Alone(world, {}, open);
  for (const int32_t from : {1, 64, 65, 66, 128, 129, 199, 200}) {
    SCOPED_TRACE(from);
    const std::unique_ptr<DecodeEngine> engine = world.MakeEngine({.step_tokens = 50});
    Peer peer(*engine);
    peer.Open(7, open.tokens);
    peer.Run();
    open.first.number = 8;
    open.prompt_logprobs_from = from;
    // Of its own output too, which is no part of the prompt.
    OpenCommand again = open;
    again.tokens.insert(again.tokens.end(), {5, 6, 7});
    peer.Open(again);
    peer.Run();
    EXPECT_EQ(peer.Last<OpenedEvent>(8).cached_tokens, from == 200 ? 192 : (from - 1) / 64 * 64);
    ExpectSameLines(LinesOf(peer.All<PromptLogprobsEvent>(8), from),
                    {whole.begin() + (from - 1), whole.end()});
    EXPECT_EQ(peer.Last<CandidatesEvent>(8).position, 203);
  }
}

TEST(DecodeEnginePrompt, APromptOfOneTokenHasNone) {
  const TinyWorld& world = PlainWorld();
  EXPECT_TRUE(Alone(world, {}, PromptOpen(1, {5}, 20)).empty());
}

TEST(DecodeEnginePrompt, ChoicesHaveThemOnceAndTheNextGoesOnWhereTheFirstEnds) {
  const TinyWorld& world = PlainWorld();
  OpenCommand open = PromptOpen(1, RandomTokens(8, 200, world.vocab_size()), 2);
  const std::vector<Line> want = Alone(world, {}, open);
  open.choices = 3;
  for (const int32_t steps : {0, 1, 2, 3}) {
    SCOPED_TRACE(steps);
    const std::unique_ptr<DecodeEngine> engine = world.MakeEngine({.step_tokens = 40});
    Peer peer(*engine);
    peer.Open(open);
    // One more step is in flight when the first choice goes.
    for (int32_t i = 0; i < steps; ++i) {
      engine->Launch(1);
      if (i > 0) {
        ASSERT_TRUE(engine->Collect(1).ok());
      }
    }
    engine->Close({{0, 1}}, 1);
    Finish(*engine);
    std::vector<PromptLogprobsEvent> events = peer.All<PromptLogprobsEvent>(1);
    const std::vector<PromptLogprobsEvent> rest = peer.All<PromptLogprobsEvent>(2);
    EXPECT_FALSE(rest.empty());
    events.insert(events.end(), rest.begin(), rest.end());
    ExpectSameLines(LinesOf(events, 1), want);
    EXPECT_TRUE(peer.All<PromptLogprobsEvent>(3).empty());
    for (const uint64_t number : {2, 3}) {
      EXPECT_EQ(peer.All<CandidatesEvent>(number).size(), 1u);
      engine->Close({{0, number}}, 1);
    }
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  }
}

// All rows of the prompt are in flight, and the choices run already, when the first one goes.
TEST(DecodeEnginePrompt, ThoseInFlightAreNotLostWithTheirChoiceBehindTheFork) {
  const TinyWorld& world = PlainWorld();
  OpenCommand open = PromptOpen(1, RandomTokens(8, 30, world.vocab_size()), 2);
  const std::vector<Line> want = Alone(world, {}, open);
  open.choices = 2;
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine({});
  Peer peer(*engine);
  peer.Open(open);
  engine->Launch(1);
  engine->Launch(1);
  engine->Close({{0, 1}}, 1);
  Finish(*engine);
  ExpectSameLines(LinesOf(peer.All<PromptLogprobsEvent>(2), 1), want);
  EXPECT_EQ(peer.All<CandidatesEvent>(2).size(), 1u);
}

// The rows go from one choice to the next, and the last one ends before the step does.
TEST(DecodeEnginePrompt, ThoseInFlightOutliveEveryChoice) {
  const TinyWorld& world = PlainWorld();
  for (const int32_t launches : {1, 2}) {
    OpenCommand open = PromptOpen(1, RandomTokens(8, 30, world.vocab_size()), 2);
    open.choices = 3;
    const std::unique_ptr<DecodeEngine> engine = world.MakeEngine({.prefix_cache = false});
    Peer peer(*engine);
    peer.Open(open);
    for (int32_t i = 0; i < launches; ++i) engine->Launch(1);
    for (const uint64_t number : {2, 1, 3}) engine->Close({{0, number}}, 1);
    Finish(*engine);
    for (const uint64_t number : {1, 2, 3}) {
      EXPECT_TRUE(peer.All<PromptLogprobsEvent>(number).empty());
      EXPECT_EQ(peer.All<ClosedEvent>(number).size(), 1u);
    }
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  }
}

TEST(DecodeEnginePrompt, EndsInTheMiddleFreeEverything) {
  const TinyWorld& world = PlainWorld();
  const std::vector<std::function<void(DecodeEngine&)>> ends = {
      [](DecodeEngine& engine) {
        engine.Close({{0, 1}}, 1);
      },
      [](DecodeEngine& engine) { engine.CloseStream(0); },
      [](DecodeEngine& engine) { engine.Launch(1000); },  // the deadline
  };
  for (const auto& end : ends) {
    const std::unique_ptr<DecodeEngine> engine =
        world.MakeEngine({.step_tokens = 40, .prefix_cache = false});
    Peer peer(*engine);
    OpenCommand open = PromptOpen(1, RandomTokens(8, 200, world.vocab_size()), 2);
    open.deadline = 1000;
    peer.Open(open);
    engine->Launch(1);
    engine->Launch(1);
    ASSERT_TRUE(engine->Collect(1).ok());
    EXPECT_EQ(LinesOf(peer.All<PromptLogprobsEvent>(1), 1).size(), 40u);
    peer.Forget();
    end(*engine);
    while (*engine->Collect(1000)) {
    }
    EXPECT_TRUE(peer.All<PromptLogprobsEvent>(1).empty());
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  }
}

// An Extend while the prompt is read waits, and changes none of its logprobs.
TEST(DecodeEnginePrompt, AnExtendThatCutsThePromptIsAppliedBehindIt) {
  const TinyWorld& world = PlainWorld();
  const OpenCommand open = PromptOpen(1, RandomTokens(8, 100, world.vocab_size()), 2);
  const std::vector<Line> want = Alone(world, {}, open);
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine({.step_tokens = 40});
  Peer peer(*engine);
  peer.Open(open);
  engine->Launch(1);
  peer.Extend(1, 50, 1, {9, 9});
  Finish(*engine);
  ExpectSameLines(LinesOf(peer.All<PromptLogprobsEvent>(1), 1), want);
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 52);
}

TEST(DecodeEnginePrompt, ARowThatIsNotFiniteEndsEveryChoice) {
  for (const bool checked : {false, true}) {
    const TinyWorld world({.nan_token = 50, .checked = checked});
    std::vector<int32_t> tokens = RandomTokens(3, 100, 49);
    tokens[60] = 50;
    const std::unique_ptr<DecodeEngine> engine =
        world.MakeEngine({.max_sessions = 4, .step_tokens = 32, .kv_tokens = 2048});
    Peer peer(*engine);
    OpenCommand open = PromptOpen(1, tokens, 2);
    open.choices = 2;
    peer.Open(open);
    peer.Run();
    for (const uint64_t number : {1, 2}) {
      ASSERT_EQ(peer.All<ClosedEvent>(number).size(), 1u);
      EXPECT_EQ(peer.Last<ClosedEvent>(number).reason, Reason::kNonFinite);
      EXPECT_TRUE(peer.All<CandidatesEvent>(number).empty());
    }
    // The checked mode ends the first choice before its rows are looked at.
    std::vector<PromptLogprobsEvent> events = peer.All<PromptLogprobsEvent>(1);
    for (PromptLogprobsEvent& event : peer.All<PromptLogprobsEvent>(2)) events.push_back(event);
    EXPECT_EQ(LinesOf(events, 1).size(), 60u);
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  }
}

TEST(DecodeEnginePrompt, WhatIsOutOfRangeIsRefusedByName) {
  const TinyWorld& world = PlainWorld();
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine({});
  Peer peer(*engine);
  OpenCommand open = PromptOpen(1, {1, 2, 3}, 2);
  open.prompt_logprobs_from = 4;
  peer.Open(open);
  peer.ExpectRefused(1, "prompt_logprobs_from is 4: it must be 0 to 3");
  open.first.number = 2;
  open.prompt_logprobs_from = -1;
  peer.Open(open);
  peer.ExpectRefused(2, "prompt_logprobs_from is -1");
  open.first.number = 3;
  open.prompt_logprobs_from = 1;
  open.prompt_raw_top = 21;
  peer.Open(open);
  peer.ExpectRefused(3, "prompt_raw_top is 21: it must be 0 to 20");
}

}  // namespace
}  // namespace tandem::test
