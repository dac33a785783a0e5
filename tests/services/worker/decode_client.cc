#include "tests/services/worker/decode_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/check.h"
#include "services/common/channel.h"
#include "services/common/decode_codec.h"

namespace tandem::test {

namespace pb = ::tandem::decode::v1;

DecodeClient::DecodeClient(const std::string& address, const Keepalive& keepalive) {
  ChannelOptions options;
  options.target = address;
  options.keepalive = keepalive;
  options.max_receive_bytes = kMaxFrameBytes;
  auto channel = MakeChannel(options);
  TANDEM_CHECK(channel.ok()) << channel.status();
  channel_ = *std::move(channel);
  stub_ = pb::DecodeWorker::NewStub(channel_);
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  stream_ = stub_->Decode(&context_);
}

DecodeClient::~DecodeClient() {
  if (finished_) return;
  Cancel();
  Finish();
}

pb::Open* DecodeClient::AddOpen(uint64_t handle, const std::vector<int32_t>& tokens) {
  pb::Open* open = frame_.add_commands()->mutable_open();
  open->set_first_handle(handle);
  open->set_choices(1);
  TokensToProto(tokens, open->mutable_tokens());
  open->set_total_tokens(static_cast<int32_t>(tokens.size()));
  open->set_prompt_length(static_cast<int32_t>(tokens.size()));
  open->set_max_new(32);
  ToProto(SamplingParameters(), open->mutable_draw());
  return open;
}

void DecodeClient::AddExtend(uint64_t handle, int32_t position, uint32_t epoch,
                             const std::vector<int32_t>& tokens) {
  pb::Extend* extend = frame_.add_commands()->mutable_extend();
  extend->set_handle(handle);
  extend->set_position(position);
  extend->set_epoch(epoch);
  TokensToProto(tokens, extend->mutable_tokens());
}

void DecodeClient::AddFetchRow(uint64_t handle, int32_t position) {
  pb::Fetch* fetch = frame_.add_commands()->mutable_fetch();
  fetch->set_handle(handle);
  fetch->set_position(position);
  fetch->mutable_row();
}

void DecodeClient::AddClose(uint64_t handle) {
  frame_.add_commands()->mutable_close()->set_handle(handle);
}

bool DecodeClient::Send() { return stream_->Write(std::exchange(frame_, {})); }

std::optional<pb::DecodeResponse> DecodeClient::ReadFrame() {
  pb::DecodeResponse frame;
  if (finished_ || !stream_->Read(&frame)) return std::nullopt;
  return frame;
}

std::optional<pb::Event> DecodeClient::ReadEvent(
    const std::function<bool(const pb::Event&)>& wanted) {
  while (true) {
    while (!unread_.empty()) {
      pb::Event event = std::move(unread_.back());
      unread_.pop_back();
      if (wanted(event)) return event;
    }
    std::optional<pb::DecodeResponse> frame = ReadFrame();
    if (!frame) return std::nullopt;
    unread_.assign(frame->events().rbegin(), frame->events().rend());
  }
}

std::optional<pb::Candidates> DecodeClient::ReadCandidates(uint64_t handle) {
  const auto event = ReadEvent([&](const pb::Event& e) {
    return (e.has_candidates() && e.candidates().handle() == handle) ||
           (e.has_closed() && e.closed().handle() == handle);
  });
  if (!event || !event->has_candidates()) return std::nullopt;
  return event->candidates();
}

std::optional<pb::Closed> DecodeClient::ReadClosed(uint64_t handle) {
  const auto event = ReadEvent(
      [&](const pb::Event& e) { return e.has_closed() && e.closed().handle() == handle; });
  if (!event) return std::nullopt;
  return event->closed();
}

std::vector<float> DecodeClient::ReadRow(uint64_t handle) {
  std::vector<float> values;
  while (true) {
    const auto event = ReadEvent(
        [&](const pb::Event& e) { return e.has_fetched() && e.fetched().handle() == handle; });
    if (!event) return {};
    const pb::Fetched::Values& chunk = event->fetched().values();
    TANDEM_CHECK(chunk.offset() == static_cast<int32_t>(values.size())) << chunk.offset();
    values.insert(values.end(), chunk.values().begin(), chunk.values().end());
    if (static_cast<int32_t>(values.size()) == chunk.total()) return values;
  }
}

bool DecodeClient::WaitForLoad(const std::function<bool(const pb::Load&)>& wanted) {
  while (const auto frame = ReadFrame()) {
    unread_.insert(unread_.begin(), frame->events().rbegin(), frame->events().rend());
    if (frame->has_load() && wanted(frame->load())) return true;
  }
  return false;
}

grpc::Status DecodeClient::Finish() {
  if (!finished_) {
    while (ReadFrame()) {
    }
    finished_ = stream_->Finish();
  }
  return *finished_;
}

std::vector<int32_t> DecodeClient::Generate(uint64_t handle, const std::vector<int32_t>& prompt,
                                            int32_t num_tokens) {
  std::vector<int32_t> tokens;
  AddOpen(handle, prompt);
  Send();
  auto position = static_cast<int32_t>(prompt.size());
  while (static_cast<int32_t>(tokens.size()) < num_tokens) {
    const auto candidates = ReadCandidates(handle);
    if (!candidates || candidates->position() != position) return tokens;
    tokens.push_back(static_cast<int32_t>(candidates->drawn()));
    AddExtend(handle, position++, 0, {tokens.back()});
    Send();
  }
  return tokens;
}

}  // namespace tandem::test
