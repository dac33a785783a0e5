#include "services/worker/stream_session.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "services/common/decode_codec.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;

std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

absl::StatusOr<Nanos> ParseDuration(const char* field, const google::protobuf::Duration& time) {
  if (time.nanos() <= -kNanosPerSecond || time.nanos() >= kNanosPerSecond ||
      (time.seconds() > 0 && time.nanos() < 0) || (time.seconds() < 0 && time.nanos() > 0)) {
    return InvalidArgument(field, " is ", time.seconds(), " s and ", time.nanos(),
                           " ns: nanos must be below a second and of the same sign");
  }
  return FromProto(time);
}

// A time left on our own clock. A time that is over is `now`; one beyond the clock is as good as
// none.
absl::StatusOr<Nanos> Deadline(const google::protobuf::Duration& left, Nanos now) {
  ASSIGN_OR_RETURN(const Nanos nanos, ParseDuration("time_left", left));
  Nanos deadline = 0;
  if (nanos < 0) return now;
  return __builtin_add_overflow(nanos, now, &deadline) ? kNoDeadline : deadline;
}

}  // namespace

StreamSession::StreamSession(int64_t stream, const StreamLimits& limits, Mailbox& mailbox,
                             std::shared_ptr<StreamOutbox> outbox,
                             std::shared_ptr<ReadWindow> window, SessionEnds* ends)
    : stream_(stream),
      limits_(limits),
      mailbox_(mailbox),
      outbox_(std::move(outbox)),
      window_(std::move(window)),
      ends_(ends) {}

absl::StatusOr<bool> StreamSession::Handle(const pb::DecodeRequest& frame, Nanos now) {
  std::lock_guard lock(mutex_);
  if (ended_ || outbox_->ending()) return true;
  CommandFrame out;
  out.bytes = static_cast<int64_t>(sizeof(MailboxItem) + frame.ByteSizeLong() +
                                   frame.commands_size() * sizeof(EngineCommand));
  out.window = window_;
  out.commands.reserve(frame.commands_size());
  for (const pb::Command& command : frame.commands()) {
    RETURN_IF_ERROR(HandleCommandLocked(command, now, &out.commands));
  }
  const int64_t bytes = out.bytes;
  mailbox_.Post(std::move(out));
  return window_->Charge(bytes);
}

void StreamSession::End() {
  std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return;
  partial_.clear();
  mailbox_.Post(StreamEnded{stream_});
}

absl::Status StreamSession::HandleCommandLocked(const pb::Command& command, Nanos now,
                                                Batch* batch) {
  switch (command.command_case()) {
    case pb::Command::kOpen:
      return OpenLocked(command.open(), now, batch);
    case pb::Command::kOpenMore:
      return OpenMoreLocked(command.open_more(), batch);
    case pb::Command::kExtend:
      return ExtendLocked(command.extend(), batch);
    case pb::Command::kFetch:
      return FetchLocked(command.fetch(), batch);
    case pb::Command::kClose:
      return CloseLocked(command.close(), batch);
    case pb::Command::COMMAND_NOT_SET:
      break;
  }
  return Unimplemented("a command is of a kind that this worker does not know");
}

absl::Status StreamSession::OpenLocked(const pb::Open& open, Nanos now, Batch* batch) {
  const uint64_t first = open.first_handle();
  if (first <= last_handle_) {
    return InvalidArgument("first_handle is ", first, ": it must be above ", last_handle_);
  }
  if (open.choices() < 1 || open.choices() > limits_.max_choices) {
    last_handle_ = first;
    return RefuseLocked(
        first, 1,
        absl::StrCat("choices is ", open.choices(), ": it must be 1 to ", limits_.max_choices),
        open.request_id());
  }
  uint64_t last = 0;
  if (__builtin_add_overflow(first, static_cast<uint64_t>(open.choices()) - 1, &last)) {
    return InvalidArgument("first_handle is ", first, ": no room for ", open.choices(), " handles");
  }
  last_handle_ = last;
  absl::StatusOr<OpenCommand> command = ParseOpen(open, now);
  if (!command.ok()) {
    return RefuseLocked(first, open.choices(), Message(command.status()), open.request_id());
  }
  if (open.tokens_size() == open.total_tokens()) {
    batch->push_back(*std::move(command));
    return absl::OkStatus();
  }
  if (partial_.size() >= static_cast<size_t>(kMaxPartialOpens)) {
    return RefuseLocked(first, open.choices(),
                        absl::StrCat(partial_.size(), " opens wait for their tokens: the limit is ",
                                     kMaxPartialOpens),
                        open.request_id());
  }
  partial_[first] = {*std::move(command), open.total_tokens()};
  return absl::OkStatus();
}

absl::StatusOr<OpenCommand> StreamSession::ParseOpen(const pb::Open& open, Nanos now) const {
  if (open.total_tokens() < 1 || open.total_tokens() > limits_.context_length) {
    return InvalidArgument("total_tokens is ", open.total_tokens(), ": it must be 1 to ",
                           limits_.context_length);
  }
  if (open.tokens_size() > open.total_tokens()) {
    return InvalidArgument("tokens has ", open.tokens_size(), " entries: total_tokens is ",
                           open.total_tokens());
  }
  if (open.prompt_length() < 1 || open.prompt_length() > open.total_tokens()) {
    return InvalidArgument("prompt_length is ", open.prompt_length(), ": it must be 1 to ",
                           open.total_tokens());
  }
  if (open.has_max_new() && open.max_new() < 1) {
    return InvalidArgument("max_new is ", open.max_new(), ": it must be at least 1, or absent");
  }
  if (open.run_ahead() < 0 || open.run_ahead() > limits_.max_run_ahead) {
    return InvalidArgument("run_ahead is ", open.run_ahead(), ": it must be 0 to ",
                           limits_.max_run_ahead);
  }
  if (open.drafts() < 0 || open.drafts() > limits_.max_drafts) {
    return InvalidArgument("drafts is ", open.drafts(), ": it must be 0 to ", limits_.max_drafts);
  }
  if (open.salt().size() > static_cast<size_t>(kMaxSalt)) {
    return InvalidArgument("salt has ", open.salt().size(), " bytes: at most ", kMaxSalt);
  }
  if (open.request_id().size() > static_cast<size_t>(kMaxRequestId)) {
    return InvalidArgument("request_id has ", open.request_id().size(), " bytes: at most ",
                           kMaxRequestId);
  }
  if (!open.has_draw()) return InvalidArgument("draw is absent: it must say at least the lists");
  OpenCommand out;
  ASSIGN_OR_RETURN(out.sampling, FromProto(open.draw()));
  if (open.has_time_left()) {
    ASSIGN_OR_RETURN(out.deadline, Deadline(open.time_left(), now));
  }
  ASSIGN_OR_RETURN(out.age, ParseDuration("age", open.age()));
  if (out.age < 0) {
    return InvalidArgument("age is ", open.age().seconds(), " s and ", open.age().nanos(),
                           " ns: it must be at least 0");
  }
  out.first = {stream_, open.first_handle()};
  out.choices = open.choices();
  out.first_choice = open.first_choice();
  out.tokens = TokensFromProto(open.tokens());
  out.prompt_length = open.prompt_length();
  out.max_new = open.max_new();
  out.priority = open.priority();
  out.run_ahead = open.run_ahead();
  out.drafts = open.drafts();
  out.use_cache = !open.no_cache();
  out.salt = open.salt();
  out.request_id = open.request_id();
  if (open.has_prompt_logprobs()) {
    out.prompt_logprobs_from = open.prompt_logprobs().first_position();
    out.prompt_raw_top = open.prompt_logprobs().num_raw_top();
    if (out.prompt_logprobs_from < 1) {
      return InvalidArgument("prompt_logprobs.first_position is ", out.prompt_logprobs_from,
                             ": it must be 1 to ", open.prompt_length(), ", the prompt_length");
    }
  }
  return out;
}

absl::Status StreamSession::OpenMoreLocked(const pb::OpenMore& more, Batch* batch) {
  RETURN_IF_ERROR(CheckOpenedLocked("OpenMore", more.first_handle()));
  const auto partial = partial_.find(more.first_handle());
  if (partial == partial_.end()) return absl::OkStatus();
  std::vector<int32_t>& tokens = partial->second.command.tokens;
  const int64_t total = partial->second.total_tokens;
  if (static_cast<int64_t>(tokens.size()) + more.tokens_size() > total) {
    return RefusePartialLocked(partial,
                               absl::StrCat("OpenMore brings ", tokens.size() + more.tokens_size(),
                                            " tokens: total_tokens is ", total));
  }
  const std::vector<int32_t> next = TokensFromProto(more.tokens());
  tokens.insert(tokens.end(), next.begin(), next.end());
  if (static_cast<int64_t>(tokens.size()) == total) {
    batch->push_back(std::move(partial->second.command));
    partial_.erase(partial);
  }
  return absl::OkStatus();
}

absl::Status StreamSession::ExtendLocked(const pb::Extend& extend, Batch* batch) {
  RETURN_IF_ERROR(CheckOpenedLocked("Extend", extend.handle()));
  if (const auto partial = FindPartialLocked(extend.handle()); partial != partial_.end()) {
    return RefusePartialLocked(partial, "Extend before the tokens of Open were complete");
  }
  batch->push_back(ExtendCommand{{stream_, extend.handle()},
                                 extend.position(),
                                 extend.epoch(),
                                 TokensFromProto(extend.tokens())});
  return absl::OkStatus();
}

absl::Status StreamSession::FetchLocked(const pb::Fetch& fetch, Batch* batch) {
  RETURN_IF_ERROR(CheckOpenedLocked("Fetch", fetch.handle()));
  FetchCommand out;
  out.handle = {stream_, fetch.handle()};
  out.position = fetch.position();
  switch (fetch.what_case()) {
    case pb::Fetch::kMore:
      out.what = FetchCommand::What::kMore;
      out.num_top = fetch.more().num_top();
      out.num_perturbed = fetch.more().num_perturbed();
      break;
    case pb::Fetch::kIds:
      out.what = FetchCommand::What::kIds;
      out.ids = TokensFromProto(fetch.ids().ids());
      break;
    case pb::Fetch::kRow:
      out.what = FetchCommand::What::kRow;
      break;
    case pb::Fetch::WHAT_NOT_SET:
      return Unimplemented("a Fetch asks for something that this worker does not know");
  }
  if (const auto partial = FindPartialLocked(fetch.handle()); partial != partial_.end()) {
    return RefusePartialLocked(partial, "Fetch before the tokens of Open were complete");
  }
  batch->push_back(std::move(out));
  return absl::OkStatus();
}

absl::Status StreamSession::CloseLocked(const pb::Close& close, Batch* batch) {
  RETURN_IF_ERROR(CheckOpenedLocked("Close", close.handle()));
  const Nanos retain = FromProto(close.retain());
  const auto partial = FindPartialLocked(close.handle());
  if (partial == partial_.end()) {
    batch->emplace_back(CloseCommand{{stream_, close.handle()}, retain});
    return absl::OkStatus();
  }
  // The engine does not know these handles yet. Those beside the closed one cannot open without it.
  const uint64_t first = partial->first;
  const auto choices = static_cast<uint64_t>(partial->second.command.choices);
  const std::string request_id = partial->second.command.request_id;
  partial_.erase(partial);
  for (uint64_t handle = first; handle - first < choices; ++handle) {
    if (handle == close.handle()) continue;
    RETURN_IF_ERROR(RefuseLocked(
        handle, 1, absl::StrCat("handle ", close.handle(), " of the same Open was closed early"),
        request_id));
  }
  if (retain < 0 || retain > limits_.max_retain) {
    return RefuseLocked(
        close.handle(), 1,
        absl::StrCat("retain is ", retain, " ns: it must be 0 to ", limits_.max_retain),
        request_id);
  }
  std::vector<EngineEvent> closed;
  closed.push_back(ClosedEvent{{stream_, close.handle()}, ClosedEvent::Reason::kDone, ""});
  if (outbox_->Push(std::move(closed), std::nullopt)) return absl::OkStatus();
  return ResourceExhausted("the peer does not read");
}

absl::Status StreamSession::CheckOpenedLocked(const char* command, uint64_t handle) const {
  if (handle >= 1 && handle <= last_handle_) return absl::OkStatus();
  return InvalidArgument(command, " names handle ", handle, ": the last that was opened is ",
                         last_handle_);
}

std::map<uint64_t, StreamSession::PartialOpen>::iterator StreamSession::FindPartialLocked(
    uint64_t handle) {
  auto after = partial_.upper_bound(handle);
  if (after == partial_.begin()) return partial_.end();
  const auto found = std::prev(after);
  const auto choices = static_cast<uint64_t>(found->second.command.choices);
  return handle - found->first < choices ? found : partial_.end();
}

absl::Status StreamSession::RefuseLocked(uint64_t first, int32_t choices, const std::string& why,
                                         const std::string& request_id) {
  std::vector<EngineEvent> closed;
  for (int32_t i = 0; i < choices; ++i) {
    ClosedEvent event{.handle = {stream_, first + static_cast<uint64_t>(i)},
                      .reason = ClosedEvent::Reason::kRefused,
                      .detail = why,
                      .request_id = request_id};
    if (ends_ != nullptr) ends_->OnClosed(event);
    closed.push_back(std::move(event));
  }
  if (outbox_->Push(std::move(closed), std::nullopt)) return absl::OkStatus();
  return ResourceExhausted("the peer does not read");
}

absl::Status StreamSession::RefusePartialLocked(std::map<uint64_t, PartialOpen>::iterator partial,
                                                const std::string& why) {
  const uint64_t first = partial->first;
  const OpenCommand command = std::move(partial->second.command);
  partial_.erase(partial);
  return RefuseLocked(first, command.choices, why, command.request_id);
}

}  // namespace tandem
