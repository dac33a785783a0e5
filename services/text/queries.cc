#include "services/text/queries.h"

#include <memory>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/text/utf8.h"

namespace tandem::text {
namespace {

constexpr int32_t kMaxTokensOfTokenize = 1 << 18;

void FillModel(const Router::ModelCount& entry, v1::Model* out) {
  const ServedModel& model = *entry.model;
  out->set_name(model.name);
  out->set_architecture(model.architecture);
  out->set_context_length(model.context_length);
  out->set_vocab_size(model.vocab_size);
  out->set_weights_fingerprint(model.weights_fingerprint);
  out->set_tokenizer_fingerprint(model.tokenizer_fingerprint);
  out->mutable_end_ids()->Add(model.end_ids.begin(), model.end_ids.end());
  out->set_workers(entry.workers);
  out->set_has_chat_template(model.text->chat_template != nullptr);
}

}  // namespace

absl::Status Tokenize(const Router& router, const v1::TokenizeRequest& request,
                      v1::TokenizeResponse* out) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, router.Find(request.model()));
  const Tokenizer& tokenizer = model->tokenizer();
  const auto encoding = tokenizer.Encode(request.text(), {.add_special = request.add_special(),
                                                          .parse_special = request.parse_special(),
                                                          .max_tokens = kMaxTokensOfTokenize});
  if (!encoding.ok()) {
    return absl::Status(encoding.status().code(),
                        absl::StrCat("text: ", encoding.status().message()));
  }
  for (size_t i = 0; i < encoding->ids.size(); ++i) {
    v1::Token* token = out->add_tokens();
    token->set_id(encoding->ids[i]);
    token->set_piece(ReplaceInvalidUtf8(tokenizer.Piece(encoding->ids[i])));
    token->set_begin(encoding->offsets[i].begin);
    token->set_end(encoding->offsets[i].end);
  }
  return absl::OkStatus();
}

absl::Status Detokenize(const Router& router, const v1::DetokenizeRequest& request,
                        v1::DetokenizeResponse* out) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, router.Find(request.model()));
  const std::vector<int32_t> ids(request.ids().begin(), request.ids().end());
  const auto text = model->tokenizer().Decode(ids, request.include_special());
  if (!text.ok()) return InvalidArgument("ids: ", text.status().message());
  out->set_text(*text);
  return absl::OkStatus();
}

absl::Status ListModels(const Router& router, const v1::ListModelsRequest&,
                        v1::ListModelsResponse* out) {
  for (const Router::ModelCount& entry : router.Models()) FillModel(entry, out->add_models());
  return absl::OkStatus();
}

absl::Status GetModel(const Router& router, const v1::GetModelRequest& request,
                      v1::GetModelResponse* out) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, router.Find(request.model()));
  for (const Router::ModelCount& entry : router.Models()) {
    if (entry.model->SameModel(*model)) FillModel(entry, out->mutable_model());
  }
  return absl::OkStatus();
}

absl::Status CheckResponseSize(const google::protobuf::Message& response) {
  const size_t size = response.ByteSizeLong();
  if (size <= kMaxResponseBytes) return absl::OkStatus();
  return ResourceExhausted("the response would have ", size, " bytes: at most ", kMaxResponseBytes);
}

}  // namespace tandem::text
