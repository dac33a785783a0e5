#include "services/common/prompt_logprobs_codec.h"

#include <algorithm>
#include <cmath>

#include "engine/base/status.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;

absl::Status CheckLength(const char* field, int64_t length, int64_t expected) {
  if (length == expected) return absl::OkStatus();
  return InvalidArgument(field, " has ", length, " entries: it must have ", expected);
}

absl::Status CheckBelow(const char* field, const google::protobuf::RepeatedField<uint32_t>& values,
                        int32_t vocab_size) {
  for (const uint32_t value : values) {
    if (value >= static_cast<uint32_t>(vocab_size)) {
      return InvalidArgument(field, " holds ", value, ": the vocabulary has ", vocab_size, " ids");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const char* field, const google::protobuf::RepeatedField<float>& values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return InvalidArgument(field, " holds ", value, ": not finite");
  }
  return absl::OkStatus();
}

absl::Status Check(const pb::PromptLogprobs& message, int64_t prompt_length, int64_t num_reported,
                   int32_t num_raw_top, int32_t vocab_size) {
  const int64_t n = message.values_size();
  const int64_t first = message.first_position();
  if (n < 1 || first < 1 || first + n > prompt_length) {
    return InvalidArgument("prompt logprobs of positions ", first, " to ", first + n - 1,
                           ": the prompt has 1 to ", prompt_length - 1);
  }
  const int32_t expected = std::min(num_raw_top, vocab_size);
  if (message.num_raw_top() != expected) {
    return InvalidArgument("num_raw_top is ", message.num_raw_top(), ": it must be ", expected);
  }
  RETURN_IF_ERROR(CheckLength("ranks", message.ranks_size(), n));
  RETURN_IF_ERROR(CheckLength("max", message.max_size(), n));
  RETURN_IF_ERROR(CheckLength("total_weight", message.total_weight_size(), n));
  RETURN_IF_ERROR(CheckLength("raw_ids", message.raw_ids_size(), n * expected));
  RETURN_IF_ERROR(CheckLength("raw_values", message.raw_values_size(), n * expected));
  RETURN_IF_ERROR(CheckLength("reported_values", message.reported_values_size(), n * num_reported));
  RETURN_IF_ERROR(CheckLength("reported_ranks", message.reported_ranks_size(), n * num_reported));
  RETURN_IF_ERROR(CheckBelow("ranks", message.ranks(), vocab_size));
  RETURN_IF_ERROR(CheckBelow("raw_ids", message.raw_ids(), vocab_size));
  RETURN_IF_ERROR(CheckBelow("reported_ranks", message.reported_ranks(), vocab_size));
  RETURN_IF_ERROR(CheckFinite("values", message.values()));
  RETURN_IF_ERROR(CheckFinite("max", message.max()));
  RETURN_IF_ERROR(CheckFinite("raw_values", message.raw_values()));
  RETURN_IF_ERROR(CheckFinite("reported_values", message.reported_values()));
  for (const uint64_t total : message.total_weight()) {
    if (total == 0) return InvalidArgument("total_weight holds 0: it must not");
  }
  return absl::OkStatus();
}

}  // namespace

void ToProto(const PromptLogprobs& logprobs, pb::PromptLogprobs* out) {
  out->set_first_position(logprobs.position);
  for (const kernels::RawEntry& entry : logprobs.tokens) {
    out->add_values(entry.raw);
    out->add_ranks(static_cast<uint32_t>(entry.raw_rank));
  }
  out->mutable_max()->Assign(logprobs.raw_max.begin(), logprobs.raw_max.end());
  out->mutable_total_weight()->Assign(logprobs.raw_total.begin(), logprobs.raw_total.end());
  out->set_num_raw_top(logprobs.num_raw_top);
  for (const kernels::RawEntry& entry : logprobs.raw_top) {
    out->add_raw_ids(static_cast<uint32_t>(entry.id));
    out->add_raw_values(entry.raw);
  }
  for (const kernels::RawEntry& entry : logprobs.reported) {
    out->add_reported_values(entry.raw);
    out->add_reported_ranks(static_cast<uint32_t>(entry.raw_rank));
  }
}

absl::StatusOr<PromptLogprobs> FromProto(const pb::PromptLogprobs& message,
                                         std::span<const int32_t> prompt,
                                         std::span<const int32_t> report_ids, int32_t num_raw_top,
                                         int32_t vocab_size) {
  const auto num_reported = static_cast<int32_t>(report_ids.size());
  RETURN_IF_ERROR(
      Check(message, static_cast<int64_t>(prompt.size()), num_reported, num_raw_top, vocab_size));
  PromptLogprobs out;
  out.position = message.first_position();
  out.num_raw_top = message.num_raw_top();
  out.num_reported = num_reported;
  for (int i = 0; i < message.values_size(); ++i) {
    out.tokens.push_back(
        {prompt[out.position + i], message.values(i), static_cast<int32_t>(message.ranks(i))});
  }
  // A raw list is its row's head, so that an entry's rank is its place.
  for (int i = 0; i < message.raw_ids_size(); ++i) {
    out.raw_top.push_back(
        {static_cast<int32_t>(message.raw_ids(i)), message.raw_values(i), i % out.num_raw_top});
  }
  for (int i = 0; i < message.reported_values_size(); ++i) {
    out.reported.push_back({report_ids[i % num_reported], message.reported_values(i),
                            static_cast<int32_t>(message.reported_ranks(i))});
  }
  out.raw_max.assign(message.max().begin(), message.max().end());
  out.raw_total.assign(message.total_weight().begin(), message.total_weight().end());
  return out;
}

}  // namespace tandem
