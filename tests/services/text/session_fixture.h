// A session and scripted decoders that talk directly: no thread, no network, a clock that stands
// still unless moved.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/sampling/decision.h"
#include "engine/text/tokenizer_data.h"
#include "services/text/event_frame.h"
#include "services/text/session.h"
#include "tests/support/scripted_decoder.h"

namespace tandem::text {

inline std::shared_ptr<const ServedModel> ModelOf(const decode::v1::Hello& hello,
                                                  const TokenizerData& data) {
  auto text = MakeModelText(TokenizerFingerprint(data), data);
  EXPECT_TRUE(text.ok()) << text.status();
  auto model = MakeServedModel(hello, *std::move(text));
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// The token that spells each byte.
inline std::vector<int32_t> BytesAsTokens(const std::string& text) {
  std::vector<int32_t> out;
  for (const char c : text) out.push_back(static_cast<uint8_t>(c));
  return out;
}

// The events as one frame, cut for so many shards.
template <typename Events>
std::shared_ptr<const EventFrame> FrameOf(const Events& events, const FramePacker& packer,
                                          size_t num_shards) {
  auto frame = std::make_shared<EventFrame>();
  for (const decode::v1::Event& event : events) *frame->mutable_message()->add_events() = event;
  frame->Cut(packer, static_cast<int32_t>(num_shards));
  return frame;
}

// What came out of one choice.
struct ChoiceResult {
  std::string text;
  std::vector<std::string> deltas;
  std::vector<int32_t> token_ids;
  std::vector<v1::PositionLogprobs> logprobs;
  std::vector<v1::TokenDetail> details;
  std::vector<v1::Finished> finished;
  v1::Delta echo;  // its deltas, joined
};

class Conversation final {
 public:
  static constexpr uint64_t kFirstHandle = 16;

  Conversation(test::ScriptedDecoder* decoder, GenerationRequest request,
               const ReplayPolicy& policy = ReplayPolicy())
      : decoder_(decoder),
        model_(request.model),
        session_(std::make_unique<Session>(std::move(request), policy)) {}

  // Opens what wants to be opened now; the decoder's answers wait. How many Opens that took.
  int Open() {
    int opens = 0;
    while (const std::optional<Session::Opening> wanted = session_->NextOpening(now)) {
      SessionOutput out;
      const Session::Opening opened = session_->Open(*wanted, connection, *model_, now, &out);
      const uint64_t first_handle = next_handle_;
      next_handle_ += 16;
      for (WorkerCommand& command : out.commands) {
        if (command.command.has_open()) {
          command.command.mutable_open()->set_first_handle(first_handle);
        } else if (command.command.has_open_more()) {
          command.command.mutable_open_more()->set_first_handle(first_handle);
        }
      }
      session_->SetHandles(opened, connection, first_handle, &out);
      openings.push_back(opened);
      Take(std::move(out));
      ++opens;
    }
    return opens;
  }
  // The worker is lost, and what it had sent; the next connection is to this one, which serves the
  // model like this.
  void LoseWorker(test::ScriptedDecoder* next, std::shared_ptr<const ServedModel> model = nullptr) {
    decoder_->Reset();
    decoder_ = next;
    if (model != nullptr) model_ = std::move(model);
    events.clear();
    const uint64_t lost = connection++;
    next_handle_ = kFirstHandle;
    Do([&](Session& session, SessionOutput* out) {
      session.OnWorkerLost(lost, absl::UnavailableError("lost " + std::to_string(lost)), now, out);
    });
  }
  // Gives the session one waiting event, and the decoder what comes of it. False: none waits.
  bool Step() {
    if (events.empty()) return false;
    const decode::v1::Event event = std::move(events.front());
    events.pop_front();
    const int32_t choice = session_->ChoiceAt(connection, HandleOf(event));
    if (choice < 0) return true;
    SessionOutput out;
    session_->OnEvent(event, choice, now, &out);
    Take(std::move(out));
    return true;
  }
  void Run() {
    Open();
    Continue();
  }
  void Continue() {
    while (Step()) {
    }
  }
  template <typename Input>
  void Do(Input input) {
    SessionOutput out;
    input(*session_, &out);
    Take(std::move(out));
  }
  // The worker closes the first live handle.
  void Close(decode::v1::CloseReason reason, const std::string& detail = "") {
    const std::vector<uint64_t> live = decoder_->live();
    const uint64_t handle = live.empty() ? kFirstHandle : live.front();
    for (auto& event : decoder_->Close(handle, reason, detail)) events.push_back(event);
  }

  const Session& session() const { return *session_; }
  const ChoiceResult& choice(int32_t index = 0) {
    static const ChoiceResult kNone;
    const auto found = choices.find(index);
    return found == choices.end() ? kNone : found->second;
  }
  const v1::Finished& finished(int32_t index = 0) {
    EXPECT_EQ(choices[index].finished.size(), 1u) << "Finished messages of choice " << index;
    static const v1::Finished kNone;
    return choices[index].finished.empty() ? kNone : choices[index].finished[0];
  }

  Nanos now = 1'000'000;
  uint64_t connection = 1;
  std::vector<Session::Opening> openings;
  std::deque<decode::v1::Event> events;  // from the decoder, not yet given to the session
  std::map<int32_t, ChoiceResult> choices;
  std::vector<v1::Started> started;
  std::vector<v1::Progress> progress;
  std::vector<v1::PositionLogprobs> prompt;  // of its positions from 1 on
  std::vector<decode::v1::Command> sent;

 private:
  void Take(SessionOutput out) {
    for (WorkerCommand& to_worker : out.commands) {
      EXPECT_EQ(to_worker.connection, connection) << "there is no other worker";
      decode::v1::Command& command = to_worker.command;
      for (auto& event : decoder_->Apply(command)) events.push_back(std::move(event));
      sent.push_back(std::move(command));
    }
    for (v1::GenerateResponse& message : out.messages) Note(std::move(message));
  }
  void Note(v1::GenerateResponse message) {
    if (message.has_started()) {
      EXPECT_TRUE(choices.empty()) << "Started comes first";
      started.push_back(message.started());
    } else if (message.has_progress()) {
      progress.push_back(message.progress());
    } else if (message.has_delta()) {
      const v1::Delta& delta = message.delta();
      ChoiceResult& choice = choices[delta.choice()];
      if (delta.echo()) {
        EXPECT_TRUE(choice.deltas.empty()) << "an echo behind output";
        choice.echo.mutable_text()->append(delta.text());
        choice.echo.mutable_token_ids()->MergeFrom(delta.token_ids());
        choice.echo.mutable_logprobs()->MergeFrom(delta.logprobs());
        choice.echo.mutable_token_details()->MergeFrom(delta.token_details());
        return;
      }
      EXPECT_TRUE(choice.finished.empty()) << "a delta behind Finished: " << delta.text();
      choice.text += delta.text();
      choice.deltas.push_back(delta.text());
      choice.token_ids.insert(choice.token_ids.end(), delta.token_ids().begin(),
                              delta.token_ids().end());
      for (const auto& logprobs : delta.logprobs()) choice.logprobs.push_back(logprobs);
      for (const auto& detail : delta.token_details()) choice.details.push_back(detail);
    } else if (message.has_prompt_logprobs()) {
      const v1::PromptLogprobs& part = message.prompt_logprobs();
      EXPECT_EQ(part.first_position(), static_cast<int32_t>(prompt.size()) + 1);
      for (const auto& [index, result] : choices) EXPECT_TRUE(result.deltas.empty());
      prompt.insert(prompt.end(), part.positions().begin(), part.positions().end());
    } else {
      choices[message.finished().choice()].finished.push_back(message.finished());
    }
  }

  test::ScriptedDecoder* decoder_;
  std::shared_ptr<const ServedModel> model_;
  uint64_t next_handle_ = kFirstHandle;
  std::unique_ptr<Session> session_;
};

// Fixture: a decoder, its model, requests about it. Every test ends with the decoder content.
class SessionTest : public testing::Test {
 protected:
  ~SessionTest() override { EXPECT_EQ(decoder.errors, std::vector<std::string>()); }

  static constexpr char kPrompt[] = "say ";

  // The text that the decoder makes its model say behind the prompt, byte by byte.
  void Say(const std::string& text) { SayTokens(BytesAsTokens(text)); }
  void SayTokens(std::vector<int32_t> tokens) {
    decoder.options().rows = test::ScriptedRows(
        test::kRowSize, static_cast<int32_t>(std::string(kPrompt).size()), std::move(tokens));
  }
  std::shared_ptr<const ServedModel> Model() {
    return ModelOf(decoder.Hello(), decoder.options().tokenizer);
  }
  // Greedy, over kPrompt, with token ids.
  GenerationRequest Request() {
    GenerationRequest request;
    request.request_id = "test";
    request.model = Model();
    request.prompt = BytesAsTokens(kPrompt);
    request.token_ids = true;
    return request;
  }
  // Whole rows decide: what every session must give, whatever the worker's lists.
  std::vector<int32_t> TokensByRows(const GenerationRequest& request, int32_t choice,
                                    int32_t count) {
    Decider decider(request.sampling, static_cast<uint32_t>(choice),
                    static_cast<int32_t>(request.prompt.size()), request.prompt,
                    request.model->vocab_size, request.model->defined_bits);
    std::vector<int32_t> out;
    for (int32_t i = 0; i < count; ++i) {
      const Decision decision = decider.DecideFromRow(decoder.options().rows(decider.tokens()));
      EXPECT_EQ(decision.kind, Decision::Kind::kToken);
      out.push_back(decision.token);
      decider.Append(decision.token);
    }
    return out;
  }

  test::ScriptedDecoder decoder{test::ScriptedDecoderOptions()};
};

}  // namespace tandem::text
