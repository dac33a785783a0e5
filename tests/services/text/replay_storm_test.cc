// Sessions under random events, from a seed: choices on several workers at once, workers lost with
// what they had sent still coming, closed for every reason, clients that pause, Opens that nobody
// takes, handles that come late. Whatever happens, the client has the tokens of an undisturbed run.
#include <gmock/gmock.h>

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "services/text/event_frame.h"
#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

namespace pb = decode::v1;

class Storm final {
 public:
  Storm(uint64_t seed, const GenerationRequest& request, const test::RowFunction& rows)
      : random_(seed),
        model_(request.model),
        session_(request, {.tries = 1'000'000, .wait = 1'000'000 * kNanosPerSecond}) {
    for (uint64_t i = 0; i < 3; ++i) {
      Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
      worker.connection = last_connection_ = i + 1;
      worker.decoder.options().rows = rows;
      // A worker that draws something else now and then is cut back, so that epochs rise.
      if (seed % 3 != 1) continue;
      worker.decoder.options().tamper = [](pb::Candidates* message) {
        if (message->position() % 4 != 1 || !message->has_drawn()) return;
        message->set_drawn((message->drawn() + 1) % test::kSmallVocab);
      };
    }
  }

  // Until all is done; with every `calm` inputs less and less happens.
  void Run(int calm) {
    for (int inputs = 0; !session_.done(); ++inputs) {
      ASSERT_LT(inputs, 100 * calm) << "it never ends";
      if (Chance(40) && inputs < calm) Disturb();
      if (paused_ && (Chance(10) || inputs >= calm)) SetPaused(false);
      now_ += random_() % 20 * kNanosPerSecond / 1000;
      if (now_ >= session_.NextTimer()) {
        Do([&](SessionOutput* out) { session_.OnTimer(now_, out); });
      }
      Place(inputs >= calm);
      Deliver();
    }
  }

  std::vector<std::string> errors() const {
    std::vector<std::string> out;
    for (const auto& worker : workers_) {
      out.insert(out.end(), worker->decoder.errors.begin(), worker->decoder.errors.end());
    }
    return out;
  }
  // Sessions that a worker still has once it has all that was sent to it.
  size_t live() const {
    size_t out = 0;
    for (const auto& worker : workers_) out += worker->decoder.live().size();
    return out;
  }
  const Session& session() const { return session_; }

  std::vector<v1::GenerateResponse> messages;

 private:
  struct Worker {
    uint64_t connection = 0;
    uint64_t next_handle = 16;
    test::ScriptedDecoder decoder{test::ScriptedDecoderOptions()};
    std::deque<pb::Event> events;
  };
  struct Stale {
    uint64_t connection;
    pb::Event event;
  };

  bool Chance(uint32_t percent) { return random_() % 100 < percent; }
  Worker& Any() { return *workers_[random_() % workers_.size()]; }

  template <typename Input>
  void Do(Input input) {
    SessionOutput out;
    input(&out);
    for (WorkerCommand& command : out.commands) {
      for (const auto& worker : workers_) {
        if (worker->connection != command.connection) continue;
        for (pb::Event& event : worker->decoder.Apply(command.command)) {
          worker->events.push_back(std::move(event));
        }
      }
    }
    for (v1::GenerateResponse& message : out.messages) messages.push_back(std::move(message));
  }

  void Disturb() {
    switch (random_() % 6) {
      case 0: {  // what it sent may still come, when its connection is gone
        Worker& worker = Any();
        for (pb::Event& event : worker.events) stale_.push_back({worker.connection, event});
        worker.events.clear();
        worker.decoder.Reset();
        const uint64_t lost = worker.connection;
        worker.connection = ++last_connection_;
        worker.next_handle = 16;
        return Do([&](SessionOutput* out) {
          session_.OnWorkerLost(lost, absl::UnavailableError("gone"), now_, out);
        });
      }
      case 1:
      case 2: {
        Worker& worker = Any();
        const std::vector<uint64_t> live = worker.decoder.live();
        if (live.empty()) return;
        const pb::CloseReason reasons[] = {pb::CLOSE_REASON_PREEMPTED, pb::CLOSE_REASON_DRAINING,
                                           pb::CLOSE_REASON_FAULT};
        for (pb::Event& event :
             worker.decoder.Close(live[random_() % live.size()], reasons[random_() % 3])) {
          worker.events.push_back(std::move(event));
        }
        return;
      }
      case 3:
        return SetPaused(!paused_);
      case 4:
        now_ += random_() % 3 * kNanosPerSecond;
        return;
      case 5:
        for (const Stale& stale : stale_) {
          EXPECT_EQ(session_.ChoiceAt(stale.connection, HandleOf(stale.event)), -1);
        }
        stale_.clear();
    }
  }

  void SetPaused(bool paused) {
    paused_ = paused;
    Do([&](SessionOutput* out) { session_.SetPaused(paused, now_, out); });
  }

  // As a shard does: an Open, perhaps something in between, then its handles.
  void Place(bool calm) {
    while (const auto wanted = session_.NextOpening(now_)) {
      if (wanted->again && !calm && Chance(20)) {
        Do([&](SessionOutput* out) {
          session_.OnNoWorker(*wanted, absl::UnavailableError("none"), Chance(50), now_, out);
        });
        continue;
      }
      Worker& worker = Any();
      SessionOutput opens;
      const Session::Opening opened =
          session_.Open(*wanted, worker.connection, *model_, now_, &opens);
      const uint64_t connection = worker.connection;
      const uint64_t first_handle = worker.next_handle;
      worker.next_handle += 16;
      for (WorkerCommand& command : opens.commands) {
        command.command.mutable_open()->set_first_handle(first_handle);
      }
      if (wanted->again && !calm && Chance(20)) worker.decoder.options().refuse = "full";
      Do([&](SessionOutput* out) { *out = std::move(opens); });
      worker.decoder.options().refuse.reset();
      if (!calm && Chance(10)) Disturb();
      if (worker.connection != connection) continue;  // lost before it said so
      Do([&](SessionOutput* out) { session_.SetHandles(opened, connection, first_handle, out); });
    }
  }

  void Deliver() {
    Worker& worker = Any();
    for (size_t count = 1 + random_() % 3; count > 0 && !worker.events.empty(); --count) {
      const pb::Event event = std::move(worker.events.front());
      worker.events.pop_front();
      const int32_t choice = session_.ChoiceAt(worker.connection, HandleOf(event));
      if (choice < 0) continue;
      Do([&](SessionOutput* out) { session_.OnEvent(event, choice, now_, out); });
    }
  }

  std::mt19937_64 random_;
  const std::shared_ptr<const ServedModel> model_;
  Session session_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Stale> stale_;
  uint64_t last_connection_ = 0;
  Nanos now_ = 1;
  bool paused_ = false;
};

class ReplayStormTest : public SessionTest {
 protected:
  // Everything that a choice can be in the middle of.
  GenerationRequest Request(uint64_t seed) {
    GenerationRequest request = SessionTest::Request();
    request.sampling.temperature = seed % 5 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = seed;
    request.sampling.top_p = seed % 3 == 0 ? 0.8f : 1.0f;
    request.sampling.repetition_penalty = 1.2f;
    request.sampling.presence_penalty = 0.5f;
    request.sampling.frequency_penalty = 0.2f;
    request.sampling.frequency_window = 4;
    request.sampling.num_top = seed % 4 == 0 ? 1 : 20;  // then it fetches
    request.sampling.num_perturbed = seed % 4 == 0 ? 1 : 8;
    request.choices = 1 + static_cast<int32_t>(seed % 4);
    request.run_ahead = static_cast<int32_t>(seed % 5);
    request.max_tokens = 12;
    request.stop_strings = {"e", "st", "\xC3\xA9"};
    return request;
  }
};

TEST_F(ReplayStormTest, WhateverHappensTheClientHasWhatItWouldHaveHad) {
  int64_t reopened = 0, rewound = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    decoder.options().rows = test::HashRows(test::kRowSize, 2.5f);
    const GenerationRequest request = Request(seed);
    decoder.Reset();
    Conversation reference(&decoder, request);
    reference.Run();
    Storm storm(seed, request, decoder.options().rows);
    storm.Run(/*calm=*/400);
    ASSERT_TRUE(storm.session().FinalStatus().ok()) << storm.session().FinalStatus();
    EXPECT_EQ(storm.errors(), std::vector<std::string>());
    EXPECT_EQ(storm.live(), 0u);
    std::map<int32_t, ChoiceResult> got;
    int started = 0;
    for (const v1::GenerateResponse& message : storm.messages) {
      started += message.has_started();
      if (message.has_finished()) {
        got[message.finished().choice()].finished.push_back(message.finished());
        reopened += message.finished().counters().reopened();
      }
      ChoiceResult& choice = got[message.delta().choice()];
      choice.text += message.delta().text();
      choice.token_ids.insert(choice.token_ids.end(), message.delta().token_ids().begin(),
                              message.delta().token_ids().end());
    }
    EXPECT_EQ(started, 1);
    for (int32_t i = 0; i < request.choices; ++i) {
      EXPECT_EQ(got[i].token_ids, reference.choice(i).token_ids);
      EXPECT_EQ(got[i].text, reference.choice(i).text);
      ASSERT_EQ(got[i].finished.size(), 1u);
      EXPECT_EQ(got[i].finished[0].reason(), reference.finished(i).reason());
      EXPECT_EQ(got[i].finished[0].stop(), reference.finished(i).stop());
      const v1::Counters& counters = got[i].finished[0].counters();
      EXPECT_GE(counters.misses(), counters.rewound());
      EXPECT_TRUE(counters.misses() == 0 || seed % 3 == 1);
      rewound += counters.rewound();
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(reopened, 2000);
  EXPECT_GT(rewound, 200);
}

}  // namespace
}  // namespace tandem::text
