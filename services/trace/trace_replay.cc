#include "services/trace/trace_replay.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/status.h"
#include "services/common/decode_codec.h"

namespace tandem {
namespace {

namespace pb = decode::v1;
using Source = RecordedStep::Source;

constexpr int32_t kMaxVocab = 1 << 18;
constexpr int32_t kMaxChoices = 1024;

absl::Status CheckTokens(const char* what, const std::vector<int32_t>& tokens, int32_t vocab_size) {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab_size) {
      return InvalidArgument(what, " has id ", token, " of ", vocab_size);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceReplay>> TraceReplay::Make(const Trace* trace) {
  std::unique_ptr<TraceReplay> out(new TraceReplay(trace));
  const trace::v1::Header& header = trace->header;
  const int32_t vocab_size = header.vocab_size();
  if (vocab_size < 1 || vocab_size > kMaxVocab) {
    return InvalidArgument("header: vocab_size is ", vocab_size);
  }
  if (header.defined_size() != 0 && header.defined_size() != (vocab_size + 31) / 32) {
    return InvalidArgument("header: defined has ", header.defined_size(), " words for ", vocab_size,
                           " ids");
  }
  if (header.choices() < 1 || header.choices() > kMaxChoices || header.first_choice() < 0) {
    return InvalidArgument("header: choices is ", header.choices(), ", first_choice ",
                           header.first_choice());
  }
  ASSIGN_OR_RETURN(out->parameters_, FromProto(header.draw()));
  RETURN_IF_ERROR(Validate(out->parameters_, vocab_size));
  out->prompt_ = TokensFromProto(header.prompt());
  if (out->prompt_.empty()) return InvalidArgument("header: there is no prompt");
  out->begin_ = out->prompt_;
  for (const int32_t token : TokensFromProto(header.resume())) out->begin_.push_back(token);
  RETURN_IF_ERROR(CheckTokens("header", out->begin_, vocab_size));
  out->defined_bits_.assign(header.defined().begin(), header.defined().end());
  return out;
}

absl::Status TraceReplay::Run(const Visit& visit) {
  choices_.clear();
  texts_.clear();
  for (int32_t i = 0; i < trace_->header.choices(); ++i) {
    choices_.emplace_back().decider = std::make_unique<Decider>(
        parameters_, static_cast<uint32_t>(trace_->header.first_choice() + i),
        static_cast<int32_t>(prompt_.size()), begin_, vocab_size(), defined_bits_);
  }
  for (size_t i = 0; i < trace_->records.size(); ++i) {
    const trace::v1::Record& record = trace_->records[i];
    const uint64_t connection = record.connection();
    absl::Status status;
    if (record.has_texts()) {
      const int32_t count = std::min(record.texts().ids_size(), record.texts().texts_size());
      for (int32_t t = 0; t < count; ++t) {
        texts_[static_cast<int32_t>(record.texts().ids(t))] = record.texts().texts(t);
      }
    } else if (record.command().has_open()) {
      status = OnOpen(connection, record.command().open());
    } else if (record.command().has_extend()) {
      status = OnExtend(connection, record.nanos(), record.command().extend(), visit);
    } else if (record.has_handles()) {
      status = OnHandles(connection, record.handles());
    } else if (record.event().has_candidates()) {
      status = OnCandidates(connection, record.nanos(), record.event().candidates());
    } else if (record.event().has_fetched()) {
      status = OnFetched(connection, record.event().fetched());
    } else if (record.has_ended()) {
      status = OnEnded(record.ended(), record.nanos(), visit);
    }
    if (!status.ok()) return InvalidArgument("record ", i + 1, ": ", status.message());
  }
  return absl::OkStatus();
}

absl::Status TraceReplay::OnOpen(uint64_t connection, const pb::Open& open) {
  const int64_t first = int64_t{open.first_choice()} - trace_->header.first_choice();
  const int64_t end = first + open.choices();
  if (first < 0 || open.choices() < 1 || end > static_cast<int64_t>(choices_.size())) {
    return InvalidArgument("an Open of ", open.choices(), " choices from ", open.first_choice(),
                           " on, of ", choices_.size());
  }
  const std::vector<int32_t> tokens = TokensFromProto(open.tokens());
  for (int64_t i = first; i < end; ++i) {
    ChoiceState& choice = choices_[i];
    const std::vector<int32_t>& held = choice.decider->tokens();
    if (open.total_tokens() != choice.decider->position() || tokens.size() > held.size() ||
        !std::equal(tokens.begin(), tokens.end(), held.begin())) {
      return InvalidArgument("choice ", i, " is opened with other tokens than were recorded");
    }
    choice.connection = connection;
    choice.handle = 0;
    choice.epoch = 0;
    choice.decided = -1;
    ++choice.opens;
    choice.pending.clear();
  }
  return absl::OkStatus();
}

absl::Status TraceReplay::OnHandles(uint64_t connection, const trace::v1::Handles& handles) {
  const int64_t end = int64_t{handles.first_choice()} + handles.choices();
  if (handles.first_choice() < 0 || end > static_cast<int64_t>(choices_.size())) {
    return InvalidArgument("handles of choices ", handles.first_choice(), " to ", end - 1, " of ",
                           choices_.size());
  }
  for (int32_t i = handles.first_choice(); i < end; ++i) {
    // One that has left meanwhile was opened elsewhere.
    if (choices_[i].connection != connection || choices_[i].handle != 0) continue;
    choices_[i].handle = handles.first_handle() + static_cast<uint64_t>(i - handles.first_choice());
  }
  return absl::OkStatus();
}

TraceReplay::ChoiceState* TraceReplay::Find(uint64_t connection, uint64_t handle, int32_t* choice) {
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i].connection != connection || choices_[i].handle != handle || handle == 0) {
      continue;
    }
    *choice = static_cast<int32_t>(i);
    return &choices_[i];
  }
  return nullptr;
}

absl::Status TraceReplay::OnCandidates(uint64_t connection, Nanos now,
                                       const pb::Candidates& event) {
  int32_t index = 0;
  ChoiceState* const choice = Find(connection, event.handle(), &index);
  if (choice == nullptr || event.epoch() != choice->epoch) return absl::OkStatus();
  // What a session decides in one turn goes out after it: lists of that turn cannot know of it.
  ASSIGN_OR_RETURN(Candidates lists, FromProto(event, vocab_size()));
  Pending& pending = choice->pending[event.position()];
  pending = {.lists = std::move(lists),
             .source = Source::kLists,
             .drawn = event.has_drawn() ? static_cast<int32_t>(event.drawn()) : -1,
             .ran_ahead = event.position() > choice->decider->position() || choice->decided == now,
             .arrived = now};
  return absl::OkStatus();
}

absl::Status TraceReplay::OnFetched(uint64_t connection, const pb::Fetched& event) {
  int32_t index = 0;
  ChoiceState* const choice = Find(connection, event.handle(), &index);
  if (choice == nullptr) return absl::OkStatus();
  const auto found = choice->pending.find(event.position());
  if (found == choice->pending.end()) return absl::OkStatus();
  Pending& pending = found->second;
  if (event.has_more()) {
    ASSIGN_OR_RETURN(pending.lists, FromProto(event.more(), vocab_size()));
    pending.source = Source::kWiderLists;
  } else if (event.has_values() && event.values().row()) {
    const pb::Fetched::Values& values = event.values();
    if (values.offset() != static_cast<int64_t>(pending.row.size()) ||
        values.offset() + int64_t{values.values_size()} > vocab_size()) {
      return InvalidArgument("row values from ", values.offset(), " on");
    }
    pending.row.insert(pending.row.end(), values.values().begin(), values.values().end());
    if (static_cast<int32_t>(pending.row.size()) == vocab_size()) pending.source = Source::kRow;
  }
  return absl::OkStatus();
}

absl::Status TraceReplay::OnExtend(uint64_t connection, Nanos now, const pb::Extend& extend,
                                   const Visit& visit) {
  int32_t index = 0;
  ChoiceState* const choice = Find(connection, extend.handle(), &index);
  if (choice == nullptr) return InvalidArgument("an Extend of a handle that no choice has");
  if (extend.position() != choice->decider->position()) {
    return InvalidArgument("an Extend from position ", extend.position(), " on: the next is ",
                           choice->decider->position());
  }
  for (const uint32_t token : extend.tokens()) RETURN_IF_ERROR(Step(index, token, now, visit));
  if (extend.epoch() != choice->epoch) choice->pending.clear();
  choice->epoch = extend.epoch();
  return absl::OkStatus();
}

// The token that ended the choice, if one did.
absl::Status TraceReplay::OnEnded(const trace::v1::Ended& ended, Nanos now, const Visit& visit) {
  const int32_t index = ended.finished().choice();
  if (index < 0 || index >= static_cast<int32_t>(choices_.size())) {
    return InvalidArgument("the end of choice ", index, " of ", choices_.size());
  }
  const int32_t position = choices_[index].decider->position();
  if (ended.total_tokens() == position) return absl::OkStatus();
  if (ended.total_tokens() != position + 1 || !ended.has_last_token()) {
    return InvalidArgument("choice ", index, " ends with ", ended.total_tokens(),
                           " tokens: recorded are ", position);
  }
  return Step(index, ended.last_token(), now, visit);
}

absl::Status TraceReplay::Step(int32_t index, uint32_t token, Nanos now, const Visit& visit) {
  if (token >= static_cast<uint32_t>(vocab_size())) {
    return InvalidArgument("id ", token, " of ", vocab_size());
  }
  ChoiceState& choice = choices_[index];
  RecordedStep step{.choice = index,
                    .position = choice.decider->position(),
                    .token = static_cast<int32_t>(token),
                    .reopened = std::max(0, choice.opens - 1),
                    .connection = choice.connection,
                    .decided = now};
  std::optional<Decider> whole;  // with all of the row in its top list
  Candidates row_lists;
  const auto found = choice.pending.find(step.position);
  if (found != choice.pending.end()) {
    const Pending& pending = found->second;
    step.source = pending.source;
    step.drawn = pending.drawn;
    step.ran_ahead = pending.ran_ahead;
    step.arrived = pending.arrived;
    step.decider = choice.decider.get();
    step.lists = &pending.lists;
    step.decision = step.decider->DecideFromCandidates(pending.lists);
    if (pending.source == Source::kRow) {
      if (step.decision.kind == Decision::Kind::kFault) step.fault = step.decision.why;
      SamplingParameters parameters = parameters_;
      parameters.num_top = vocab_size();
      whole.emplace(parameters, choice.decider->params().choice,
                    static_cast<int32_t>(prompt_.size()), choice.decider->tokens(), vocab_size(),
                    defined_bits_);
      row_lists = whole->CandidatesFromRow(pending.row);
      step.decider = &*whole;
      step.lists = &row_lists;
      step.decision = whole->DecideFromRow(pending.row);
    }
  }
  visit(step);
  choice.pending.erase(step.position);
  choice.decided = now;
  choice.decider->Append(step.token);
  return absl::OkStatus();
}

}  // namespace tandem
