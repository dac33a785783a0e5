#include "services/text/served_model.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "kernels/draw/candidates.h"
#include "services/common/decode_codec.h"

namespace tandem::text {
namespace {

constexpr int32_t kMaxVocabSize = 1 << 18;  // what the sums of weights allow
constexpr int32_t kMaxContextLength = 1 << 28;

absl::Status InRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("Hello.", field, " is ", value, ": it must be ", low, " to ", high);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelText>> MakeModelText(std::string fingerprint,
                                                               TokenizerData data) {
  auto out = std::make_shared<ModelText>();
  out->fingerprint = std::move(fingerprint);
  if (data.chat_template.empty()) {
    out->chat_template_status = absl::NotFoundError("the model has no chat template");
  } else {
    auto parsed = ChatTemplate::Parse(data.chat_template);
    if (parsed.ok()) {
      out->chat_template = *std::move(parsed);
    } else {
      out->chat_template_status = parsed.status();
    }
  }
  ASSIGN_OR_RETURN(out->tokenizer, MakeTokenizer(std::move(data)));
  return out;
}

std::string ServedModel::WorkerFingerprint() const {
  return weights_fingerprint + "-" + numerics_fingerprint;
}

bool ServedModel::SameModel(const ServedModel& other) const {
  return name == other.name && weights_fingerprint == other.weights_fingerprint &&
         tokenizer_fingerprint == other.tokenizer_fingerprint;
}

absl::Status CheckHello(const decode::v1::Hello& hello) {
  if (hello.protocol_major() != kProtocolMajor) {
    return FailedPrecondition("the worker speaks protocol ", hello.protocol_major(), ".",
                              hello.protocol_minor(), ": this text tier speaks ", kProtocolMajor,
                              ".", kProtocolMinor);
  }
  if (hello.model().empty()) return InvalidArgument("Hello.model is empty");
  if (hello.tokenizer_fingerprint().empty()) {
    return InvalidArgument("Hello.tokenizer_fingerprint is empty");
  }
  RETURN_IF_ERROR(InRange("vocab_size", hello.vocab_size(), 1, kMaxVocabSize));
  RETURN_IF_ERROR(InRange("context_length", hello.context_length(), 2, kMaxContextLength));
  RETURN_IF_ERROR(InRange("max_top", hello.max_top(), 1, INT32_MAX));
  RETURN_IF_ERROR(InRange("max_perturbed", hello.max_perturbed(), 1, INT32_MAX));
  RETURN_IF_ERROR(InRange("max_raw_top", hello.max_raw_top(), 0, INT32_MAX));
  RETURN_IF_ERROR(InRange("max_report_ids", hello.max_report_ids(), 0, INT32_MAX));
  RETURN_IF_ERROR(InRange("max_choices", hello.max_choices(), 1, INT32_MAX));
  RETURN_IF_ERROR(InRange("max_run_ahead", hello.max_run_ahead(), 0, INT32_MAX));
  RETURN_IF_ERROR(InRange("max_drafts", hello.max_drafts(), 0, INT32_MAX));
  RETURN_IF_ERROR(InRange("max_salt_bytes", hello.max_salt_bytes(), 0, INT32_MAX));
  for (const int32_t id : hello.end_ids()) {
    RETURN_IF_ERROR(InRange("end_ids", id, 0, hello.vocab_size() - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const ServedModel>> MakeServedModel(
    const decode::v1::Hello& hello, std::shared_ptr<const ModelText> text) {
  if (text->fingerprint != hello.tokenizer_fingerprint()) {
    return FailedPrecondition("the tokenizer has fingerprint ", text->fingerprint,
                              ": the worker names ", hello.tokenizer_fingerprint());
  }
  const int32_t tokens = text->tokenizer->vocab_size();
  if (tokens > hello.vocab_size()) {
    return FailedPrecondition("the tokenizer has ", tokens, " tokens: the worker's rows have ",
                              hello.vocab_size());
  }
  auto out = std::make_shared<ServedModel>();
  out->name = hello.model();
  out->architecture = hello.architecture();
  out->weights_fingerprint = hello.weights_fingerprint();
  out->tokenizer_fingerprint = hello.tokenizer_fingerprint();
  out->numerics_fingerprint = hello.numerics_fingerprint();
  out->vocab_size = hello.vocab_size();
  out->context_length = hello.context_length();
  out->end_ids.assign(hello.end_ids().begin(), hello.end_ids().end());
  std::sort(out->end_ids.begin(), out->end_ids.end());
  out->end_ids.erase(std::unique(out->end_ids.begin(), out->end_ids.end()), out->end_ids.end());
  const auto has_feature = [&](const char* feature) {
    return std::count(hello.features().begin(), hello.features().end(), feature) > 0;
  };
  out->limits = {.max_top = std::min(hello.max_top(), kernels::kMaxTop),
                 .max_perturbed = std::min(hello.max_perturbed(), kernels::kMaxPerturbed),
                 .max_raw_top = std::min(hello.max_raw_top(), kernels::kMaxRawTop),
                 .max_report_ids = std::min(hello.max_report_ids(), kernels::kMaxReported),
                 .max_choices = hello.max_choices(),
                 .max_run_ahead = hello.max_run_ahead(),
                 .max_drafts = has_feature(kDraftsFeature) ? hello.max_drafts() : 0,
                 .max_salt_bytes = hello.max_salt_bytes(),
                 .max_retain = std::max<Nanos>(0, FromProto(hello.max_retain())),
                 .prompt_logprobs = has_feature(kPromptLogprobsFeature),
                 .request_id = has_feature(kRequestIdFeature)};
  out->defined_bits = DefinedBits(text->tokenizer->data(), hello.vocab_size());
  out->text = std::move(text);
  return out;
}

}  // namespace tandem::text
