#include "services/common/decode_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;

absl::Status CheckLength(const char* field, int64_t length, int64_t expected) {
  if (length == expected) return absl::OkStatus();
  return InvalidArgument(field, " has ", length, " entries: it must have ", expected);
}

absl::Status CheckLimit(const char* field, int64_t value, int64_t limit) {
  if (value >= 0 && value <= limit) return absl::OkStatus();
  return InvalidArgument(field, " is ", value, ": it must be 0 to ", limit);
}

absl::Status CheckIds(const char* field, const google::protobuf::RepeatedField<uint32_t>& ids,
                      int32_t vocab_size) {
  for (uint32_t id : ids) {
    if (id >= static_cast<uint32_t>(vocab_size)) {
      return InvalidArgument(field, " holds ", id, ": the vocabulary has ", vocab_size, " ids");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRanks(const char* field, const google::protobuf::RepeatedField<uint32_t>& ranks,
                        int32_t num_in_row) {
  for (uint32_t rank : ranks) {
    if (rank >= static_cast<uint32_t>(num_in_row)) {
      return InvalidArgument(field, " holds ", rank, ": the row has ", num_in_row, " ids");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const char* field, const google::protobuf::RepeatedField<float>& values) {
  for (float value : values) {
    if (!std::isfinite(value)) return InvalidArgument(field, " holds ", value, ": not finite");
  }
  return absl::OkStatus();
}

absl::Status CheckLists(const pb::Lists& lists, int32_t vocab_size) {
  RETURN_IF_ERROR(CheckLimit("num_in_row", lists.num_in_row(), vocab_size));
  const int64_t top = lists.top_ids_size();
  RETURN_IF_ERROR(CheckLimit("the length of top_ids", top,
                             std::min<int64_t>(kernels::kMaxTop, lists.num_in_row())));
  RETURN_IF_ERROR(CheckLength("top_raw", lists.top_raw_size(), top));
  RETURN_IF_ERROR(CheckLength("top_adjusted", lists.top_adjusted_size(), top));
  RETURN_IF_ERROR(CheckIds("top_ids", lists.top_ids(), vocab_size));
  RETURN_IF_ERROR(CheckFinite("top_raw", lists.top_raw()));
  RETURN_IF_ERROR(CheckFinite("top_adjusted", lists.top_adjusted()));

  const int64_t perturbed = lists.perturbed_ids_size();
  RETURN_IF_ERROR(CheckLimit("the length of perturbed_ids", perturbed,
                             std::min<int64_t>(kernels::kMaxPerturbed, lists.num_in_row())));
  RETURN_IF_ERROR(CheckLength("perturbed_raw", lists.perturbed_raw_size(), perturbed));
  RETURN_IF_ERROR(CheckLength("perturbed_adjusted", lists.perturbed_adjusted_size(), perturbed));
  RETURN_IF_ERROR(CheckLength("perturbed_values", lists.perturbed_values_size(), perturbed));
  RETURN_IF_ERROR(CheckLength("perturbed_ranks", lists.perturbed_ranks_size(), perturbed));
  RETURN_IF_ERROR(
      CheckLength("perturbed_mass_above", lists.perturbed_mass_above_size(), perturbed));
  RETURN_IF_ERROR(CheckIds("perturbed_ids", lists.perturbed_ids(), vocab_size));
  RETURN_IF_ERROR(CheckRanks("perturbed_ranks", lists.perturbed_ranks(), lists.num_in_row()));
  RETURN_IF_ERROR(CheckFinite("perturbed_raw", lists.perturbed_raw()));
  RETURN_IF_ERROR(CheckFinite("perturbed_adjusted", lists.perturbed_adjusted()));
  RETURN_IF_ERROR(CheckFinite("perturbed_values", lists.perturbed_values()));
  if (!std::isfinite(lists.next_perturbed()) &&
      lists.next_perturbed() != -std::numeric_limits<float>::infinity()) {
    return InvalidArgument("next_perturbed is ", lists.next_perturbed(),
                           ": it must be finite or -inf");
  }
  if (lists.num_in_row() > 0 && !std::isfinite(lists.row_max())) {
    return InvalidArgument("row_max is ", lists.row_max(), ": not finite");
  }
  return absl::OkStatus();
}

absl::Status CheckRaw(const pb::Lists& lists, int32_t vocab_size) {
  const pb::RawPart& raw = lists.raw();
  RETURN_IF_ERROR(CheckLength("top_raw_ranks", raw.top_raw_ranks_size(), lists.top_ids_size()));
  RETURN_IF_ERROR(CheckLength("perturbed_raw_ranks", raw.perturbed_raw_ranks_size(),
                              lists.perturbed_ids_size()));
  RETURN_IF_ERROR(CheckRanks("top_raw_ranks", raw.top_raw_ranks(), vocab_size));
  RETURN_IF_ERROR(CheckRanks("perturbed_raw_ranks", raw.perturbed_raw_ranks(), vocab_size));
  RETURN_IF_ERROR(CheckLimit("the length of raw.ids", raw.ids_size(), kernels::kMaxRawTop));
  RETURN_IF_ERROR(CheckLength("raw.values", raw.values_size(), raw.ids_size()));
  RETURN_IF_ERROR(CheckIds("raw.ids", raw.ids(), vocab_size));
  RETURN_IF_ERROR(CheckFinite("raw.values", raw.values()));
  const int64_t reported = raw.reported_ids_size();
  RETURN_IF_ERROR(CheckLimit("the length of reported_ids", reported, kernels::kMaxReported));
  RETURN_IF_ERROR(CheckLength("reported_values", raw.reported_values_size(), reported));
  RETURN_IF_ERROR(CheckLength("reported_ranks", raw.reported_ranks_size(), reported));
  RETURN_IF_ERROR(CheckIds("reported_ids", raw.reported_ids(), vocab_size));
  RETURN_IF_ERROR(CheckRanks("reported_ranks", raw.reported_ranks(), vocab_size));
  RETURN_IF_ERROR(CheckFinite("reported_values", raw.reported_values()));
  if (!std::isfinite(raw.max())) return InvalidArgument("raw.max is ", raw.max(), ": not finite");
  if (raw.total_weight() == 0) return InvalidArgument("raw.total_weight is 0: it must not be");
  return absl::OkStatus();
}

// REQUIRES CheckRaw passed.
void RawFromProto(const pb::RawPart& raw, Candidates* out) {
  for (size_t i = 0; i < out->top.size(); ++i) {
    out->top[i].raw_rank = static_cast<int32_t>(raw.top_raw_ranks(i));
  }
  for (size_t i = 0; i < out->perturbed.size(); ++i) {
    out->perturbed[i].raw_rank = static_cast<int32_t>(raw.perturbed_raw_ranks(i));
  }
  // The raw list is the row's head, so that an entry's rank is its place.
  for (int i = 0; i < raw.ids_size(); ++i) {
    out->raw_top.push_back({static_cast<int32_t>(raw.ids(i)), raw.values(i), i});
  }
  for (int i = 0; i < raw.reported_ids_size(); ++i) {
    out->reported.push_back({static_cast<int32_t>(raw.reported_ids(i)), raw.reported_values(i),
                             static_cast<int32_t>(raw.reported_ranks(i))});
  }
  out->summary.num_raw_top = raw.ids_size();
  out->summary.num_reported = raw.reported_ids_size();
  out->summary.raw_max = raw.max();
  out->summary.raw_total = raw.total_weight();
}

void RawToProto(const Candidates& candidates, pb::RawPart* out) {
  for (const kernels::TopEntry& entry : candidates.top) {
    out->add_top_raw_ranks(static_cast<uint32_t>(entry.raw_rank));
  }
  for (const kernels::PerturbedEntry& entry : candidates.perturbed) {
    out->add_perturbed_raw_ranks(static_cast<uint32_t>(entry.raw_rank));
  }
  for (const kernels::RawEntry& entry : candidates.raw_top) {
    out->add_ids(static_cast<uint32_t>(entry.id));
    out->add_values(entry.raw);
  }
  for (const kernels::RawEntry& entry : candidates.reported) {
    out->add_reported_ids(static_cast<uint32_t>(entry.id));
    out->add_reported_values(entry.raw);
    out->add_reported_ranks(static_cast<uint32_t>(entry.raw_rank));
  }
  out->set_max(candidates.summary.raw_max);
  out->set_total_weight(candidates.summary.raw_total);
}

}  // namespace

std::vector<int32_t> TokensFromProto(const google::protobuf::RepeatedField<uint32_t>& tokens) {
  std::vector<int32_t> out;
  out.reserve(tokens.size());
  for (uint32_t token : tokens) {
    out.push_back(static_cast<int32_t>(std::min<uint32_t>(token, INT32_MAX)));
  }
  return out;
}

void TokensToProto(std::span<const int32_t> tokens,
                   google::protobuf::RepeatedField<uint32_t>* out) {
  out->Reserve(out->size() + static_cast<int>(tokens.size()));
  for (int32_t token : tokens) out->AddAlreadyReserved(static_cast<uint32_t>(token));
}

void ToProto(const Candidates& candidates, pb::Lists* out) {
  const kernels::RowSummary& summary = candidates.summary;
  TANDEM_CHECK(summary.first_nonfinite < 0) << "lists of a row with a non-finite logit";
  for (const kernels::TopEntry& entry : candidates.top) {
    out->add_top_ids(static_cast<uint32_t>(entry.id));
    out->add_top_raw(entry.raw);
    out->add_top_adjusted(entry.adjusted);
  }
  for (const kernels::PerturbedEntry& entry : candidates.perturbed) {
    out->add_perturbed_ids(static_cast<uint32_t>(entry.id));
    out->add_perturbed_raw(entry.raw);
    out->add_perturbed_adjusted(entry.adjusted);
    out->add_perturbed_values(entry.perturbed);
    out->add_perturbed_ranks(static_cast<uint32_t>(entry.rank));
    out->add_perturbed_mass_above(entry.mass_above);
  }
  out->set_next_perturbed(summary.next_perturbed);
  out->set_row_max(summary.row_max);
  out->set_num_in_row(summary.num_in_row);
  out->set_total_weight(summary.total_weight);
  out->set_top_k_weight(summary.top_k_weight);
  if (summary.raw_total != 0) RawToProto(candidates, out->mutable_raw());
}

absl::Status FromProto(const pb::Lists& lists, int32_t vocab_size, Candidates* out) {
  RETURN_IF_ERROR(CheckLists(lists, vocab_size));
  out->top.clear();
  out->perturbed.clear();
  out->raw_top.clear();
  out->reported.clear();
  out->summary = {};
  out->top.reserve(lists.top_ids_size());
  for (int i = 0; i < lists.top_ids_size(); ++i) {
    out->top.push_back(
        {static_cast<int32_t>(lists.top_ids(i)), lists.top_raw(i), lists.top_adjusted(i), -1});
  }
  out->perturbed.reserve(lists.perturbed_ids_size());
  for (int i = 0; i < lists.perturbed_ids_size(); ++i) {
    out->perturbed.push_back({static_cast<int32_t>(lists.perturbed_ids(i)), lists.perturbed_raw(i),
                              lists.perturbed_adjusted(i), lists.perturbed_values(i),
                              static_cast<int32_t>(lists.perturbed_ranks(i)), -1,
                              lists.perturbed_mass_above(i)});
  }
  out->summary.num_top = lists.top_ids_size();
  out->summary.num_perturbed = lists.perturbed_ids_size();
  out->summary.num_in_row = lists.num_in_row();
  out->summary.first_nonfinite = -1;
  out->summary.row_max = lists.row_max();
  out->summary.next_perturbed = lists.next_perturbed();
  out->summary.total_weight = lists.total_weight();
  out->summary.top_k_weight = lists.top_k_weight();
  out->summary.drawn = -1;
  if (lists.has_raw()) {
    RETURN_IF_ERROR(CheckRaw(lists, vocab_size));
    RawFromProto(lists.raw(), out);
  }
  return absl::OkStatus();
}

absl::Status FromProto(const pb::Candidates& message, int32_t vocab_size, Candidates* out) {
  if (!message.has_lists()) return InvalidArgument("candidates have no lists");
  RETURN_IF_ERROR(FromProto(message.lists(), vocab_size, out));
  if (message.has_drawn()) {
    if (message.drawn() >= static_cast<uint32_t>(vocab_size)) {
      return InvalidArgument("drawn is ", message.drawn(), ": the vocabulary has ", vocab_size,
                             " ids");
    }
    out->summary.drawn = static_cast<int32_t>(message.drawn());
  }
  return absl::OkStatus();
}

absl::StatusOr<Candidates> FromProto(const pb::Lists& lists, int32_t vocab_size) {
  Candidates out;
  RETURN_IF_ERROR(FromProto(lists, vocab_size, &out));
  return out;
}

absl::StatusOr<Candidates> FromProto(const pb::Candidates& message, int32_t vocab_size) {
  Candidates out;
  RETURN_IF_ERROR(FromProto(message, vocab_size, &out));
  return out;
}

void ToProto(const SamplingParameters& parameters, pb::DrawParameters* out) {
  out->set_seed(parameters.seed);
  out->set_temperature(parameters.temperature);
  out->set_top_k(parameters.top_k);
  out->set_top_p(parameters.top_p);
  out->set_min_p(parameters.min_p);
  out->set_repetition_penalty(parameters.repetition_penalty);
  out->set_presence_penalty(parameters.presence_penalty);
  out->set_frequency_penalty(parameters.frequency_penalty);
  out->set_repetition_window(parameters.repetition_window);
  out->set_presence_window(parameters.presence_window);
  out->set_frequency_window(parameters.frequency_window);
  out->set_min_tokens(parameters.min_tokens);
  out->mutable_end_ids()->Assign(parameters.end_ids.begin(), parameters.end_ids.end());
  for (const auto& [id, bias] : parameters.logit_bias) {
    out->add_bias_ids(id);
    out->add_bias_values(bias);
  }
  out->mutable_allowed_ids()->Assign(parameters.allowed_ids.begin(), parameters.allowed_ids.end());
  out->mutable_banned_ids()->Assign(parameters.banned_ids.begin(), parameters.banned_ids.end());
  out->set_num_top(parameters.num_top);
  out->set_num_perturbed(parameters.num_perturbed);
  out->set_want_raw(parameters.want_raw);
  out->set_num_raw_top(parameters.num_raw_top);
  for (int32_t id : parameters.report_ids) out->add_report_ids(id);
}

absl::StatusOr<SamplingParameters> FromProto(const pb::DrawParameters& message) {
  RETURN_IF_ERROR(CheckLength("bias_values", message.bias_values_size(), message.bias_ids_size()));
  SamplingParameters out;
  out.seed = message.seed();
  out.temperature = message.temperature();
  out.top_k = message.top_k();
  out.top_p = message.has_top_p() ? message.top_p() : 1.0f;
  out.min_p = message.min_p();
  out.repetition_penalty = message.has_repetition_penalty() ? message.repetition_penalty() : 1.0f;
  out.presence_penalty = message.presence_penalty();
  out.frequency_penalty = message.frequency_penalty();
  out.repetition_window = message.repetition_window();
  out.presence_window = message.presence_window();
  out.frequency_window = message.frequency_window();
  out.min_tokens = message.min_tokens();
  out.end_ids.assign(message.end_ids().begin(), message.end_ids().end());
  out.logit_bias.reserve(message.bias_ids_size());
  for (int i = 0; i < message.bias_ids_size(); ++i) {
    out.logit_bias.emplace_back(message.bias_ids(i), message.bias_values(i));
  }
  out.allowed_ids.assign(message.allowed_ids().begin(), message.allowed_ids().end());
  out.banned_ids.assign(message.banned_ids().begin(), message.banned_ids().end());
  out.num_top = message.num_top();
  out.num_perturbed = message.num_perturbed();
  out.want_raw = message.want_raw();
  out.num_raw_top = message.num_raw_top();
  out.report_ids.assign(message.report_ids().begin(), message.report_ids().end());
  return out;
}

void ToProto(Nanos nanos, google::protobuf::Duration* out) {
  out->set_seconds(nanos / kNanosPerSecond);
  out->set_nanos(static_cast<int32_t>(nanos % kNanosPerSecond));
}

Nanos FromProto(const google::protobuf::Duration& duration) {
  Nanos nanos = 0;
  if (__builtin_mul_overflow(duration.seconds(), kNanosPerSecond, &nanos) ||
      __builtin_add_overflow(nanos, static_cast<Nanos>(duration.nanos()), &nanos)) {
    return duration.seconds() < 0 ? std::numeric_limits<Nanos>::min()
                                  : std::numeric_limits<Nanos>::max();
  }
  return nanos;
}

pb::CloseReason ToProto(ClosedEvent::Reason reason) {
  switch (reason) {
    case ClosedEvent::Reason::kDone:
      return pb::CLOSE_REASON_DONE;
    case ClosedEvent::Reason::kPreempted:
      return pb::CLOSE_REASON_PREEMPTED;
    case ClosedEvent::Reason::kDraining:
      return pb::CLOSE_REASON_DRAINING;
    case ClosedEvent::Reason::kExpired:
      return pb::CLOSE_REASON_EXPIRED;
    case ClosedEvent::Reason::kRefused:
      return pb::CLOSE_REASON_REFUSED;
    case ClosedEvent::Reason::kNonFinite:
      return pb::CLOSE_REASON_NON_FINITE;
    case ClosedEvent::Reason::kFault:
      return pb::CLOSE_REASON_FAULT;
  }
  return pb::CLOSE_REASON_FAULT;
}

ClosedEvent::Reason FromProto(pb::CloseReason reason) {
  switch (reason) {
    case pb::CLOSE_REASON_DONE:
      return ClosedEvent::Reason::kDone;
    case pb::CLOSE_REASON_PREEMPTED:
      return ClosedEvent::Reason::kPreempted;
    case pb::CLOSE_REASON_DRAINING:
      return ClosedEvent::Reason::kDraining;
    case pb::CLOSE_REASON_EXPIRED:
      return ClosedEvent::Reason::kExpired;
    case pb::CLOSE_REASON_REFUSED:
      return ClosedEvent::Reason::kRefused;
    case pb::CLOSE_REASON_NON_FINITE:
      return ClosedEvent::Reason::kNonFinite;
    default:
      return ClosedEvent::Reason::kFault;
  }
}

void ToProto(const EngineLoad& load, pb::Load* out) {
  out->set_step(load.steps);
  out->set_running(load.running);
  out->set_queued(load.queued);
  out->set_free_pages(load.free_pages);
  out->set_total_pages(load.total_pages);
  ToProto(load.last_step_nanos, out->mutable_step_time());
  out->set_queued_prefill_tokens(load.queued_prefill_tokens);
  out->set_cached_pages(load.cached_pages);
  out->set_prefilled_tokens(load.prefilled_tokens);
  out->set_reused_tokens(load.reused_tokens);
  out->set_evicted_pages(load.evicted_pages);
  out->set_preempted(load.preempted);
  out->set_drafted_tokens(load.drafted_tokens);
  out->set_taken_drafts(load.taken_drafts);
}

std::vector<uint32_t> DefinedBits(const TokenizerData& data, int32_t vocab_size) {
  std::vector<uint32_t> bits((static_cast<size_t>(vocab_size) + 31) / 32, 0);
  for (int32_t id = 0; id < vocab_size; ++id) {
    const size_t i = static_cast<size_t>(id);
    const bool listed = i < data.tokens.size() && !data.tokens[i].empty();
    const bool unused = i < data.types.size() && data.types[i] == TokenType::kUnused;
    if (data.tokens.empty() || (listed && !unused)) bits[i / 32] |= uint32_t{1} << (i % 32);
  }
  return bits;
}

}  // namespace tandem
