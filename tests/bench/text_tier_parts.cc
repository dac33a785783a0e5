#include "tests/bench/text_tier_parts.h"

#include <time.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/sampling/decision.h"
#include "services/common/decode_codec.h"
#include "services/text/event_frame.h"
#include "services/text/output_text.h"
#include "services/text/session.h"
#include "tests/bench/bench_support.h"
#include "tests/bench/canned_worker.h"

namespace tandem::test {
namespace {

namespace pb = decode::v1;
using text::GenerationRequest;
using text::Session;
using text::SessionOutput;

double ThreadMicros() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// Sessions side by side, as a shard has them: turn by turn, one position of each.
class Parts final {
 public:
  explicit Parts(const PartsOptions& options) : options_(options) {
    auto model_text =
        Must(text::MakeModelText(TokenizerFingerprint(CannedTokenizer()), CannedTokenizer()));
    const auto model =
        Must(text::MakeServedModel(CannedHello(/*max_run_ahead=*/0), std::move(model_text)));
    request_ = std::make_unique<GenerationRequest>(
        Must(text::CheckRequest(BenchRequest(options.tokens), model, [] { return 1; })));
    const auto session = Start(16);
    for (const SessionOutput& out : opened_) {
      for (const text::WorkerCommand& command : out.commands) {
        if (command.command.has_open()) open_ = command.command.open();
      }
    }
    candidates_ = CannedCandidates(open_, options.tokens);
    std::vector<pb::Event> events;
    for (int32_t i = 0; i < options.tokens; ++i) {
      for (int32_t s = 0; s < options.sessions; ++s) {
        pb::Event event;
        *event.mutable_candidates() = candidates_[static_cast<size_t>(i)];
        event.mutable_candidates()->set_handle(Handle(s));
        events.push_back(std::move(event));
      }
    }
    pb::DecodeResponse frame;
    for (pb::Event& event : events) {
      *frame.add_events() = std::move(event);
      if (frame.events_size() < options.events_per_frame) continue;
      frames_.push_back(frame.SerializeAsString());
      frame.Clear();
    }
    if (!frame.events().empty()) frames_.push_back(frame.SerializeAsString());
  }

  double Parse() const {
    text::EventFrame frame;
    const double start = ThreadMicros();
    for (const std::string& bytes : frames_) {
      TANDEM_CHECK(frame.mutable_message()->ParseFromString(bytes));
      frame.Reset();
    }
    return PerToken(start);
  }

  double Lists() const {
    Candidates lists;
    const double start = ThreadMicros();
    for (int32_t s = 0; s < options_.sessions; ++s) {
      for (const pb::Candidates& message : candidates_) {
        TANDEM_CHECK(FromProto(message, kCannedVocab, &lists).ok());
      }
    }
    return PerToken(start);
  }

  double Decide() const {
    std::vector<Candidates> lists;
    for (const pb::Candidates& message : candidates_) {
      lists.push_back(Must(FromProto(message, kCannedVocab)));
    }
    std::vector<Decider> deciders;
    for (int32_t s = 0; s < options_.sessions; ++s) {
      deciders.emplace_back(request_->sampling, 0, static_cast<int32_t>(request_->prompt.size()),
                            request_->prompt, kCannedVocab, request_->model->defined_bits);
    }
    const double start = ThreadMicros();
    for (const Candidates& each : lists) {
      for (Decider& decider : deciders) {
        const Decision decision = decider.DecideFromCandidates(each);
        TANDEM_CHECK(decision.token == each.summary.drawn) << decision.why;
        decider.Append(decision.token);
      }
    }
    return PerToken(start);
  }

  double Text() const {
    std::vector<std::unique_ptr<text::OutputText>> outputs;
    for (int32_t s = 0; s < options_.sessions; ++s) {
      outputs.push_back(std::make_unique<text::OutputText>(*request_));
    }
    size_t bytes = 0;
    const double start = ThreadMicros();
    for (const pb::Candidates& message : candidates_) {
      for (const auto& output : outputs) {
        bytes += output->Add(static_cast<int32_t>(message.drawn())).text.size();
      }
    }
    const double micros = PerToken(start);
    TANDEM_CHECK(bytes > 0);
    return micros;
  }

  double WholeSessions() const {
    std::vector<std::unique_ptr<Session>> sessions;
    for (int32_t s = 0; s < options_.sessions; ++s) sessions.push_back(Start(Handle(s)));
    std::vector<pb::Event> events(candidates_.size());
    for (size_t i = 0; i < events.size(); ++i) *events[i].mutable_candidates() = candidates_[i];
    int64_t extends = 0;
    SessionOutput out;
    const double start = ThreadMicros();
    for (const pb::Event& event : events) {
      for (const auto& session : sessions) {
        out.clear();
        session->OnEvent(event, 0, 0, &out);
        extends += static_cast<int64_t>(out.commands.size());
      }
    }
    const double micros = PerToken(start);
    TANDEM_CHECK(extends == int64_t{options_.tokens} * options_.sessions);
    return micros;
  }

  double Commands() const {
    pb::DecodeRequest frame;
    for (int32_t i = 0; i < options_.commands_per_frame; ++i) {
      pb::Extend* extend = frame.add_commands()->mutable_extend();
      extend->set_handle(Handle(i));
      extend->set_position(300);
      extend->add_tokens(20'000);
    }
    std::string bytes;
    const int32_t rounds = options_.tokens * options_.sessions / options_.commands_per_frame;
    const double start = ThreadMicros();
    for (int32_t i = 0; i < rounds; ++i) TANDEM_CHECK(frame.SerializeToString(&bytes));
    return (ThreadMicros() - start) / (rounds * options_.commands_per_frame);
  }

  double Message() const {
    v1::GenerateResponse message;
    for (int32_t i = 0; i < options_.tokens_per_message; ++i) {
      message.mutable_delta()->mutable_text()->append(" words");
    }
    std::string bytes;
    const int32_t rounds = options_.tokens * options_.sessions;
    const double start = ThreadMicros();
    for (int32_t i = 0; i < rounds; ++i) TANDEM_CHECK(message.SerializeToString(&bytes));
    return (ThreadMicros() - start) / (rounds * options_.tokens_per_message);
  }

 private:
  static uint64_t Handle(int32_t session) { return 16 * (static_cast<uint64_t>(session) + 1); }

  // A session that was admitted and waits for candidates.
  std::unique_ptr<Session> Start(uint64_t handle) const {
    auto session = std::make_unique<Session>(*request_);
    SessionOutput out;
    session->Begin(0, &out);
    const Session::Opening opening =
        session->Open(*session->NextOpening(0), 1, *request_->model, 0, &out);
    session->SetHandles(opening, 1, handle, &out);
    opened_.push_back(std::move(out));
    SessionOutput ignored;
    pb::Event event;
    event.mutable_opened()->set_handle(handle);
    session->OnEvent(event, 0, 0, &ignored);
    return session;
  }
  double PerToken(double start) const {
    return (ThreadMicros() - start) / (options_.tokens * options_.sessions);
  }

  const PartsOptions options_;
  std::unique_ptr<GenerationRequest> request_;
  mutable std::vector<SessionOutput> opened_;
  pb::Open open_;
  std::vector<pb::Candidates> candidates_;
  std::vector<std::string> frames_;
};

}  // namespace

v1::GenerateRequest BenchRequest(int32_t tokens) {
  v1::GenerateRequest request;
  request.set_prompt("All sessions ask the same.");
  request.set_max_tokens(tokens);
  request.mutable_sampling()->set_temperature(0.7f);
  request.mutable_sampling()->set_top_p(0.9f);
  request.mutable_sampling()->set_seed(1);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_stopping()->add_stop_strings("\n\nUser:");
  request.mutable_stopping()->add_stop_strings("###");
  return request;
}

nlohmann::json MeasureParts(const PartsOptions& options) {
  const Parts parts(options);
  parts.WholeSessions();  // warm-up
  return {{"parse", parts.Parse()},           {"lists", parts.Lists()},
          {"decide", parts.Decide()},         {"text", parts.Text()},
          {"session", parts.WholeSessions()}, {"commands", parts.Commands()},
          {"message", parts.Message()}};
}

}  // namespace tandem::test
