#include "tests/bench/canned_worker.h"

#include <algorithm>
#include <mutex>
#include <random>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/base/check.h"
#include "engine/sampling/decision.h"
#include "services/common/decode_codec.h"
#include "tests/bench/bench_support.h"
#include "tests/support/scripted_decoder.h"

namespace tandem::test {
namespace {

namespace pb = decode::v1;

constexpr int32_t kContext = 1 << 16;
constexpr int kEventsPerFrame = 128;  // about 100 KiB

// About as steep as a language model's row. The `attempt`th of this position.
std::vector<float> Row(int32_t position, int32_t attempt) {
  std::mt19937_64 random((static_cast<uint64_t>(attempt) << 32) + static_cast<uint64_t>(position));
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> row(kCannedVocab);
  for (float& logit : row) logit = normal(random);
  for (int32_t i = 0; i < 8; ++i) row[random() % kCannedVocab] += 14.0f - static_cast<float>(i);
  return row;
}

}  // namespace

TokenizerData CannedTokenizer() {
  TokenizerData data = SmallTokenizer();
  for (int32_t id = static_cast<int32_t>(data.tokens.size()); id < kCannedVocab; ++id) {
    std::string word = "Ġ";  // a space
    for (int32_t letter = 0, rest = id; letter < 5; ++letter, rest /= 26) {
      word += static_cast<char>('a' + rest % 26);
    }
    data.tokens.push_back(std::move(word));
    data.types.push_back(TokenType::kNormal);
  }
  return data;
}

pb::Hello CannedHello(int32_t max_run_ahead) {
  const ScriptedDecoder decoder({.rows = [](auto) { return std::vector<float>(); },
                                 .vocab_size = kCannedVocab,
                                 .context_length = kContext,
                                 .tokenizer = CannedTokenizer()});
  pb::Hello hello = decoder.Hello();
  hello.set_model("canned");
  hello.set_max_sessions(4096);
  hello.set_max_run_ahead(max_run_ahead);
  return hello;
}

std::vector<pb::Candidates> CannedCandidates(const pb::Open& open, int32_t count) {
  const SamplingParameters sampling = Must(FromProto(open.draw()));
  Decider decider(sampling, open.first_choice(), open.prompt_length(),
                  TokensFromProto(open.tokens()), kCannedVocab, {});
  std::vector<pb::Candidates> out(static_cast<size_t>(count));
  for (pb::Candidates& message : out) {
    // A row whose lists decide: no fetches here.
    Candidates lists;
    Decision decision;
    for (int32_t attempt = 0; decision.kind != Decision::Kind::kToken; ++attempt) {
      lists = decider.CandidatesFromRow(Row(decider.position(), attempt));
      decision = decider.DecideFromCandidates(lists);
    }
    message.set_position(decider.position());
    message.set_drawn(static_cast<uint32_t>(decision.token));
    ToProto(lists, message.mutable_lists());
    decider.Append(decision.token);
  }
  return out;
}

class CannedWorker::Service final : public pb::DecodeWorker::CallbackService {
 public:
  Service(int32_t max_new, int32_t max_run_ahead)
      : max_new_(max_new), max_run_ahead_(max_run_ahead) {}

  grpc::ServerBidiReactor<pb::DecodeRequest, pb::DecodeResponse>* Decode(
      grpc::CallbackServerContext*) override;
  grpc::ServerWriteReactor<pb::GetTokenizerResponse>* GetTokenizer(
      grpc::CallbackServerContext*, const pb::GetTokenizerRequest*) override {
    return new TokenizerWriter();
  }

 private:
  class Stream;

  class TokenizerWriter final : public grpc::ServerWriteReactor<pb::GetTokenizerResponse> {
   public:
    TokenizerWriter() {
      const TokenizerData data = CannedTokenizer();
      pb::TokenizerData message;
      ToProto(data, &message);
      bytes_ = message.SerializeAsString();
      chunk_.set_fingerprint(TokenizerFingerprint(data));
      chunk_.set_total_bytes(static_cast<int64_t>(bytes_.size()));
      Next();
    }
    void OnWriteDone(bool ok) override { ok ? Next() : Finish(grpc::Status::OK); }
    void OnDone() override { delete this; }

   private:
    void Next() {
      if (sent_ >= bytes_.size()) return Finish(grpc::Status::OK);
      chunk_.set_chunk(bytes_.substr(sent_, 100'000));
      sent_ += chunk_.chunk().size();
      StartWrite(&chunk_);
    }
    std::string bytes_;
    size_t sent_ = 0;
    pb::GetTokenizerResponse chunk_;
  };

  // The lists for this Open; those of the first one serve all.
  const std::vector<pb::Candidates>& ListsOf(const pb::Open& open) {
    std::lock_guard lock(mutex_);
    if (lists_.empty()) {
      first_ = open;
      lists_ = CannedCandidates(open, max_new_);
    }
    TANDEM_CHECK(open.draw().SerializeAsString() == first_.draw().SerializeAsString() &&
                 open.total_tokens() == first_.total_tokens())
        << "all sessions must be one request";
    return lists_;
  }

  const int32_t max_new_;
  const int32_t max_run_ahead_;
  std::mutex mutex_;
  pb::Open first_;                     // guarded by mutex_
  std::vector<pb::Candidates> lists_;  // guarded by mutex_ until they are there
};

class CannedWorker::Service::Stream final
    : public grpc::ServerBidiReactor<pb::DecodeRequest, pb::DecodeResponse> {
 public:
  explicit Stream(Service* service) : service_(service) {
    *outgoing_.add_events()->mutable_hello() = CannedHello(service->max_run_ahead_);
    outgoing_.mutable_load();
    writing_ = true;
    StartWrite(&outgoing_);
    StartRead(&incoming_);
  }
  void OnReadDone(bool ok) override {
    std::lock_guard lock(mutex_);
    if (!ok) return FinishLocked();
    for (const pb::Command& command : incoming_.commands()) Apply(command);
    if (!writing_) Send();
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) return FinishLocked();
    Send();
  }
  void OnCancel() override {
    std::lock_guard lock(mutex_);
    FinishLocked();
  }
  void OnDone() override { delete this; }

 private:
  struct Sequence {
    const std::vector<pb::Candidates>* lists = nullptr;
    int32_t begin = 0;      // position of the first lists
    int32_t end = 0;        // of the last, and one more
    int32_t next = 0;       // position whose lists go out next
    int32_t confirmed = 0;  // tokens
    int32_t run_ahead = 0;
    bool waits = false;  // in due_
  };

  void Apply(const pb::Command& command) {
    if (command.has_open()) {
      const pb::Open& open = command.open();
      Sequence& sequence = sequences_[open.first_handle()];
      sequence.lists = &service_->ListsOf(open);
      sequence.begin = sequence.next = sequence.confirmed = open.total_tokens();
      sequence.end = sequence.begin + std::min<int32_t>(open.max_new(), service_->max_new_);
      sequence.run_ahead = open.run_ahead();
      outgoing_waits_.emplace_back().mutable_opened()->set_handle(open.first_handle());
      Mark(open.first_handle(), &sequence);
    } else if (command.has_extend()) {
      Sequence& sequence = sequences_.at(command.extend().handle());
      sequence.confirmed = command.extend().position() + command.extend().tokens_size();
      Mark(command.extend().handle(), &sequence);
    } else if (command.has_close()) {
      if (sequences_.erase(command.close().handle()) == 0) return;
      pb::Closed* closed = outgoing_waits_.emplace_back().mutable_closed();
      closed->set_handle(command.close().handle());
      closed->set_reason(pb::CLOSE_REASON_DONE);
    }
  }

  void Mark(uint64_t handle, Sequence* sequence) {
    if (!std::exchange(sequence->waits, true)) due_.push_back(handle);
  }

  // Whatever is due, in frames of a worker's size.
  void Send() {
    if (finished_ || (outgoing_waits_.empty() && due_.empty())) return;
    outgoing_.Clear();
    for (pb::Event& event : outgoing_waits_) *outgoing_.add_events() = std::move(event);
    outgoing_waits_.clear();
    size_t done = 0;
    for (; done < due_.size() && outgoing_.events_size() < kEventsPerFrame; ++done) {
      const auto found = sequences_.find(due_[done]);
      if (found == sequences_.end()) continue;
      Sequence& sequence = found->second;
      sequence.waits = false;
      while (sequence.next < sequence.end &&
             sequence.next - sequence.confirmed <= sequence.run_ahead) {
        pb::Candidates* event = outgoing_.add_events()->mutable_candidates();
        *event = (*sequence.lists)[static_cast<size_t>(sequence.next - sequence.begin)];
        event->set_handle(found->first);
        ++sequence.next;
      }
    }
    due_.erase(due_.begin(), due_.begin() + static_cast<int64_t>(done));
    if (outgoing_.events().empty()) return;
    outgoing_.mutable_load()->set_step(++step_);
    outgoing_.mutable_load()->set_running(static_cast<int32_t>(sequences_.size()));
    writing_ = true;
    StartWrite(&outgoing_);
  }

  void FinishLocked() {
    if (!std::exchange(finished_, true)) Finish(grpc::Status::OK);
  }

  Service* const service_;
  std::mutex mutex_;
  // Guarded by mutex_.
  absl::flat_hash_map<uint64_t, Sequence> sequences_;
  std::vector<uint64_t> due_;
  std::vector<pb::Event> outgoing_waits_;
  pb::DecodeRequest incoming_;
  pb::DecodeResponse outgoing_;
  int64_t step_ = 0;
  bool writing_ = false;
  bool finished_ = false;
};

grpc::ServerBidiReactor<pb::DecodeRequest, pb::DecodeResponse>* CannedWorker::Service::Decode(
    grpc::CallbackServerContext*) {
  return new Stream(this);
}

CannedWorker::CannedWorker(int32_t max_new, int32_t max_run_ahead)
    : service_(std::make_unique<Service>(max_new, max_run_ahead)) {
  grpc::Service* const services[] = {service_.get()};
  server_ = Must(RpcServer::Start({.listen = "127.0.0.1:0",
                                   .max_receive_bytes = kMaxFrameBytes,
                                   .max_send_bytes = kMaxFrameBytes},
                                  services));
}

CannedWorker::~CannedWorker() = default;

}  // namespace tandem::test
