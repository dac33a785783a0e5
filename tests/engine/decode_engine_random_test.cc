// A seeded driver that sends thousands of commands, wrong ones among them, and holds the engine to
// a plain list model of the protocol. A failure prints its seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/engine/decode_engine_harness.h"

namespace tandem::test {
namespace {

using Reason = ClosedEvent::Reason;

class RandomDriver final {
 public:
  RandomDriver(const TinyWorld& world, const EngineOptions& options, uint64_t seed)
      : world_(world), options_(options), engine_(world.MakeEngine(options)), random_(seed) {}

  void Run(int32_t num_commands) {
    for (int32_t i = 0; i < num_commands && !testing::Test::HasFailure(); ++i) {
      Command();
      Receive();
      ASSERT_EQ(engine_->CheckInvariants().ToString(), "OK") << "after command " << i;
    }
    ExpectProgress();
    for (const auto& [handle, session] : sessions_) engine_->Close({handle}, 1);
    for (auto& [handle, session] : sessions_) session.closing = true;
    Step();
    Step();
    Receive();
    EXPECT_EQ(engine_->CheckQuiescent().ToString(), "OK");
    EXPECT_TRUE(sessions_.empty()) << sessions_.size() << " handles have no Closed";
  }

  int32_t num_candidates = 0;
  int32_t num_fetched = 0;
  std::map<Reason, int32_t> num_closed;

 private:
  struct Session {
    SamplingParameters sampling;
    uint32_t choice = 0;
    int32_t prompt_length = 0;
    int32_t limit = 0;
    bool grows = false;
    Nanos deadline = kNoDeadline;
    std::vector<int32_t> tokens;
    int32_t drawn = -1;
    uint32_t epoch = 0;
    int32_t longest = 0;
    bool opened = false;
    bool ready = false;  // Candidates of the position behind the tokens have come
    bool ever_ready = false;
    bool closing = false;  // Close was sent
    bool doomed = false;   // a wrong command was sent: it must be refused
    int32_t num_early = 0;
  };

  int32_t Below(int32_t n) { return static_cast<int32_t>(random_() % uint64_t(n)); }
  bool OneIn(int32_t n) { return Below(n) == 0; }
  std::vector<int32_t> Tokens(int32_t count) {
    return RandomTokens(random_(), count, world_.vocab_size());
  }

  void Step() {
    if (OneIn(2)) engine_->Launch(now_);
    if (OneIn(2)) engine_->Launch(now_);
    ASSERT_TRUE(engine_->Collect(now_).ok());
    if (OneIn(2)) {
      ASSERT_TRUE(engine_->Collect(now_).ok());
    }
  }

  void Command() {
    now_ += Below(3);
    const int32_t what = Below(100);
    if (what < 40) {
      Step();
    } else if (what < 50) {
      Open();
    } else if (what < 52) {
      OpenWrongly();
    } else if (what < 97 && !sessions_.empty()) {
      auto session = sessions_.begin();
      std::advance(session, Below(static_cast<int32_t>(sessions_.size())));
      if (what < 82) {
        Extend(session->first, &session->second);
      } else if (what < 89) {
        Fetch(session->first, &session->second);
      } else if (what < 93) {
        session->second.closing = true;
        engine_->Close({session->first}, 1);
      } else {
        CommandWrongly(session->first, &session->second);
      }
    } else if (what < 98) {
      // Commands for handles that were never opened, or are closed.
      const SessionHandle unknown = {Below(3), next_number_ + 100};
      engine_->Close({unknown}, 1);
      engine_->Extend({unknown, 0, 0, {1}}, now_);
      engine_->Close({{0, 1}}, 1);
      if (auto first = sessions_.find({0, 1}); first != sessions_.end()) {
        first->second.closing = true;
      }
    } else if (OneIn(3)) {
      engine_->CloseStream(2);
      std::erase_if(sessions_, [](const auto& it) { return it.first.stream == 2; });
    }
  }

  void Open() {
    OpenCommand open;
    open.first = {Below(3), next_number_};
    open.choices = OneIn(4) ? 1 + Below(3) : 1;
    open.first_choice = static_cast<uint32_t>(Below(5));
    open.tokens = Tokens(1 + (OneIn(3) ? Below(150) : Below(20)));
    const int32_t length = static_cast<int32_t>(open.tokens.size());
    open.prompt_length = OneIn(2) ? length : 1 + Below(length);
    open.max_new = OneIn(2) ? 0 : length - open.prompt_length + 1 + Below(60);
    open.priority = Below(3);
    open.deadline = OneIn(5) ? now_ + 1 + Below(100) : kNoDeadline;
    open.sampling = MixedRequests(1 + Below(20), world_.vocab_size()).back().sampling;
    for (int32_t i = 0; i < open.choices; ++i) {
      Session& session = sessions_[{open.first.stream, next_number_++}];
      session.sampling = open.sampling;
      session.choice = open.first_choice + static_cast<uint32_t>(i);
      session.prompt_length = open.prompt_length;
      session.grows = open.max_new == 0;
      session.limit = session.grows ? world_.model->context_length()
                                    : std::min(world_.model->context_length(),
                                               open.prompt_length + open.max_new);
      session.deadline = open.deadline;
      session.tokens = open.tokens;
      session.longest = length;
    }
    engine_->Open(std::move(open), now_);
  }

  void OpenWrongly() {
    OpenCommand open;
    open.first = {Below(2), next_number_};
    open.tokens = Tokens(1 + Below(10));
    open.prompt_length = static_cast<int32_t>(open.tokens.size());
    switch (Below(5)) {
      case 0:
        open.tokens[0] = world_.vocab_size() + Below(1000);
        break;
      case 1:
        open.prompt_length = -Below(100);
        break;
      case 2:
        open.max_new = -1 - Below(1000);
        break;
      case 3:
        open.sampling.top_p = -1.0f;
        break;
      case 4:
        open.tokens.resize(static_cast<size_t>(world_.model->context_length()), 1);
        break;
    }
    sessions_[{open.first.stream, next_number_++}].doomed = true;
    engine_->Open(std::move(open), now_);
  }

  // A right Extend: what is held is replaced from `position` on.
  void Extend(const SessionHandle& handle, Session* session) {
    if (session->doomed || (!session->ever_ready && ++session->num_early > 10)) return;
    std::vector<int32_t> held = session->tokens;
    if (session->drawn >= 0) held.push_back(session->drawn);
    const int32_t num_held = static_cast<int32_t>(held.size());
    const int32_t lowest = std::max(1, session->longest - options_.max_rewind);
    ExtendCommand extend;
    extend.handle = handle;
    const int32_t kind = Below(10);
    if (kind < 6) {  // the draw, or the next token
      extend.position = static_cast<int32_t>(session->tokens.size());
      extend.tokens = {session->drawn >= 0 ? session->drawn : Tokens(1)[0]};
    } else {
      extend.position = lowest + Below(num_held - lowest + 1);
      if (kind < 9) extend.tokens = Tokens(1 + Below(kind == 8 ? 40 : 3));
      if (kind == 7) {  // some tokens that are held already come first
        const int32_t back = std::min(extend.position, Below(4));
        extend.tokens.insert(extend.tokens.begin(), held.begin() + extend.position - back,
                             held.begin() + extend.position);
        extend.position -= back;
      }
    }
    const int32_t count = static_cast<int32_t>(extend.tokens.size());
    if (extend.position + count > session->limit) return;
    int32_t same = extend.position;
    while (same < num_held && same < extend.position + count &&
           held[same] == extend.tokens[same - extend.position]) {
      ++same;
    }
    const bool cuts = count == 0 || (same < num_held && same < extend.position + count);
    extend.epoch = session->epoch + (cuts ? 1 : 0);
    const size_t before = session->tokens.size();
    if (cuts) {
      held.resize(same);
      held.insert(held.end(), extend.tokens.begin() + (same - extend.position),
                  extend.tokens.end());
      session->tokens = held;
    } else {
      const int32_t reached = extend.position + count;
      if (reached > num_held) {
        held.insert(held.end(), extend.tokens.end() - (reached - num_held), extend.tokens.end());
      }
      const size_t confirmed = std::max<size_t>(session->tokens.size(), size_t(reached));
      held.resize(confirmed);
      session->tokens = held;
    }
    if (cuts || session->tokens.size() != before) {
      session->drawn = -1;
      session->ready = false;
    }
    session->epoch = extend.epoch;
    session->longest = std::max(session->longest, static_cast<int32_t>(session->tokens.size()));
    engine_->Extend(extend, now_);
  }

  void Fetch(const SessionHandle& handle, Session* session) {
    if (!session->ready || session->doomed || OneIn(2)) return;
    const int32_t highest = static_cast<int32_t>(session->tokens.size());
    const int32_t lowest = std::max(1, session->longest - options_.max_rewind);
    if (lowest > highest) return;
    FetchCommand fetch;
    fetch.handle = handle;
    fetch.position = lowest + Below(highest - lowest + 1);
    fetch.what = OneIn(2) ? FetchCommand::What::kRow : FetchCommand::What::kMore;
    fetch.num_top = 1 + Below(100);
    fetch.num_perturbed = 1 + Below(kernels::kMaxPerturbed);
    engine_->Fetch(fetch, now_);
    Step();  // so that no more than a few wait
  }

  void CommandWrongly(const SessionHandle& handle, Session* session) {
    if (session->doomed || (!session->ever_ready && ++session->num_early > 10)) return;
    const int32_t length = static_cast<int32_t>(session->tokens.size());
    session->doomed = true;
    switch (Below(6)) {
      case 0:
        return engine_->Extend({handle, length, session->epoch + 2, {1}}, now_);
      case 1:
        return engine_->Extend({handle, length + 2, session->epoch, {1}}, now_);
      case 2:
        return engine_->Extend({handle, -1, session->epoch, {1}}, now_);
      case 3:
        return engine_->Extend({handle, length, session->epoch, {world_.vocab_size()}}, now_);
      case 4:
        return engine_->Extend({handle, length, session->epoch, {}}, now_);
      case 5:
        return engine_->Fetch({handle, length + 1, FetchCommand::What::kRow, 0, 0, {}}, now_);
    }
  }

  void Receive() {
    for (EngineEvent& event : engine_->TakeEvents()) {
      const SessionHandle handle = std::visit([](const auto& e) { return e.handle; }, event);
      const auto found = sessions_.find(handle);
      ASSERT_NE(found, sessions_.end())
          << "an event for handle " << handle.number << ", which has had its Closed";
      Session* session = &found->second;
      if (std::holds_alternative<OpenedEvent>(event)) {
        EXPECT_FALSE(session->opened);
        session->opened = true;
      } else if (const auto* candidates = std::get_if<CandidatesEvent>(&event)) {
        OnCandidates(*candidates, session);
      } else if (const auto* fetched = std::get_if<FetchedEvent>(&event)) {
        OnFetched(*fetched, *session);
      } else if (const auto* closed = std::get_if<ClosedEvent>(&event)) {
        OnClosed(*closed, *session);
        sessions_.erase(found);
      }
    }
  }

  void OnCandidates(const CandidatesEvent& event, Session* session) {
    ++num_candidates;
    EXPECT_TRUE(session->opened);
    EXPECT_FALSE(session->ready) << "the same position twice";
    EXPECT_EQ(event.position, static_cast<int32_t>(session->tokens.size()));
    EXPECT_EQ(event.epoch, session->epoch);
    session->ready = true;
    session->ever_ready = true;
    session->drawn = event.candidates.summary.drawn;
    const Decider decider(session->sampling, session->choice, session->prompt_length,
                          session->tokens, world_.vocab_size(), {});
    const Decision decision = decider.DecideFromCandidates(event.candidates);
    EXPECT_NE(decision.kind, Decision::Kind::kFault) << decision.why;
    EXPECT_EQ(decision.token, event.candidates.summary.drawn);
    if (num_candidates % 16 == 0) {
      const std::vector<float> row = world_.Logits(session->tokens);
      for (const kernels::TopEntry& entry : event.candidates.top) {
        EXPECT_EQ(entry.raw, row[static_cast<size_t>(entry.id)]) << "another session's logits?";
      }
    }
  }

  void OnFetched(const FetchedEvent& event, const Session& session) {
    ++num_fetched;
    ASSERT_LE(static_cast<size_t>(event.position), session.tokens.size());
    const std::vector<int32_t> prefix(session.tokens.begin(),
                                      session.tokens.begin() + event.position);
    if (event.what == FetchCommand::What::kRow) {
      if (num_fetched % 4 == 0) {
        EXPECT_EQ(event.values, world_.Logits(prefix));
      }
      return;
    }
    const Decider decider(session.sampling, session.choice, session.prompt_length, prefix,
                          world_.vocab_size(), {});
    EXPECT_NE(decider.DecideFromCandidates(event.candidates).kind, Decision::Kind::kFault);
  }

  void OnClosed(const ClosedEvent& event, const Session& session) {
    ++num_closed[event.reason];
    switch (event.reason) {
      case Reason::kDone:
        EXPECT_TRUE(session.closing);
        return;
      case Reason::kRefused:
        EXPECT_TRUE(session.doomed || event.detail.find("it needs") != std::string::npos ||
                    event.detail.find("the queue is full") != std::string::npos)
            << event.detail;
        return;
      case Reason::kPreempted:
        EXPECT_TRUE(session.grows);
        return;
      case Reason::kExpired:
        EXPECT_LE(session.deadline, now_);
        return;
      default:
        ADD_FAILURE() << "closed with reason " << static_cast<int>(event.reason);
    }
  }

  // With nobody sending commands, every session that can have Candidates gets them.
  void ExpectProgress() {
    for (int32_t turn = 0; turn < 2000; ++turn) {
      const bool launched = engine_->Launch(now_);
      const absl::StatusOr<bool> collected = engine_->Collect(now_);
      ASSERT_TRUE(collected.ok());
      Receive();
      if (!launched && !*collected) break;
      ASSERT_LT(turn, 1999) << "the engine does not come to rest";
    }
    for (const auto& [handle, session] : sessions_) {
      EXPECT_FALSE(session.doomed && session.opened) << handle.number << " was not refused";
      const bool full = static_cast<int32_t>(session.tokens.size()) >= session.limit;
      EXPECT_TRUE(session.ready || full || !session.opened) << handle.number << " waits";
    }
  }

  const TinyWorld& world_;
  const EngineOptions options_;
  std::unique_ptr<DecodeEngine> engine_;
  std::mt19937_64 random_;
  Nanos now_ = 1;
  uint64_t next_number_ = 1;
  std::map<SessionHandle, Session> sessions_;
};

void Drive(const TinyWorld& world, EngineOptions options, uint64_t seed) {
  SCOPED_TRACE(seed);
  RandomDriver driver(world, options, seed);
  driver.Run(4000);
  EXPECT_GT(driver.num_candidates, 200);
  EXPECT_GT(driver.num_fetched, 10);
  for (const Reason reason : {Reason::kDone, Reason::kRefused, Reason::kExpired}) {
    EXPECT_GT(driver.num_closed[reason], 5) << static_cast<int>(reason);
  }
}

EngineOptions SmallEngine() {
  EngineOptions options;
  options.max_sessions = 5;
  options.max_queued = 4;
  options.step_tokens = 24;
  options.kv_tokens = 16 * 64;
  options.ahead_tokens = 70;
  options.max_rewind = 40;
  return options;
}

TEST(DecodeEngineRandom, B089_B113_B115_B121_AnyCommandsKeepTheRulesAndGiveEveryPageBack) {
  for (const uint64_t seed : {1, 2, 3}) Drive(PlainWorld(), SmallEngine(), seed);
}

TEST(DecodeEngineRandom, TheSameHoldsWithWindowsAndSmallSteps) {
  TinyWorld::Options windows;
  windows.layer_windows = {0, 48};
  const TinyWorld world(windows);
  EngineOptions options = SmallEngine();
  options.step_tokens = 3;
  Drive(world, options, 4);
}

}  // namespace
}  // namespace tandem::test
