#include "services/text/openai/other.h"

#include <nlohmann/json.hpp>

#include "engine/base/status.h"
#include "services/text/openai/json_body.h"
#include "services/text/openai/json_writer.h"
#include "services/text/openai/token_fields.h"

namespace tandem::text {
namespace {

void AppendModel(const v1::Model& model, int64_t created, std::string* out) {
  out->append("{\"id\":");
  AppendJsonString(model.name(), out);
  out->append(",\"object\":\"model\",\"created\":");
  AppendInteger(created, out);
  out->append(",\"owned_by\":\"tandem\",\"root\":");
  AppendJsonString(model.name(), out);
  out->append(",\"parent\":null,\"max_model_len\":");
  AppendInteger(model.context_length(), out);
  out->append(",\"tandem\":{\"architecture\":");
  AppendJsonString(model.architecture(), out);
  out->append(",\"vocab_size\":");
  AppendInteger(model.vocab_size(), out);
  out->append(",\"weights_fingerprint\":");
  AppendJsonString(model.weights_fingerprint(), out);
  out->append(",\"tokenizer_fingerprint\":");
  AppendJsonString(model.tokenizer_fingerprint(), out);
  out->append(",\"end_ids\":[");
  for (int i = 0; i < model.end_ids_size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendInteger(model.end_ids(i), out);
  }
  out->append("],\"workers\":");
  AppendInteger(model.workers(), out);
  out->append(",\"has_chat_template\":");
  out->append(model.has_chat_template() ? "true}}" : "false}}");
}

}  // namespace

absl::StatusOr<v1::TokenizeRequest> ParseTokenizeCall(std::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json value, ParseJsonObject(body));
  v1::TokenizeRequest request;
  request.set_add_special(true);
  RETURN_IF_ERROR(ReadFields(TokenizeFields(), kOfTokens, "/tokenize", value, &request));
  return request;
}

absl::StatusOr<v1::DetokenizeRequest> ParseDetokenizeCall(std::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json value, ParseJsonObject(body));
  v1::DetokenizeRequest request;
  request.set_include_special(true);
  RETURN_IF_ERROR(ReadFields(DetokenizeFields(), kOfTokens, "/detokenize", value, &request));
  return request;
}

std::string TokenizeJson(const v1::TokenizeResponse& response) {
  std::string ids;
  std::string pieces;
  std::string offsets;
  for (const v1::Token& token : response.tokens()) {
    if (!ids.empty()) {
      for (std::string* list : {&ids, &pieces, &offsets}) list->push_back(',');
    }
    AppendInteger(token.id(), &ids);
    AppendJsonString(token.piece(), &pieces);
    offsets.push_back('[');
    AppendInteger(token.begin(), &offsets);
    offsets.push_back(',');
    AppendInteger(token.end(), &offsets);
    offsets.push_back(']');
  }
  std::string out = "{\"count\":";
  AppendInteger(response.tokens_size(), &out);
  out.append(",\"tokens\":[").append(ids);
  out.append("],\"token_strs\":[").append(pieces);
  out.append("],\"offsets\":[").append(offsets).append("]}");
  return out;
}

std::string DetokenizeJson(const v1::DetokenizeResponse& response) {
  std::string out = "{\"prompt\":";
  AppendJsonString(response.text(), &out);
  out.push_back('}');
  return out;
}

std::string ModelsJson(const v1::ListModelsResponse& response, int64_t created) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (int i = 0; i < response.models_size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendModel(response.models(i), created, &out);
  }
  out.append("]}");
  return out;
}

std::string ModelJson(const v1::Model& model, int64_t created) {
  std::string out;
  AppendModel(model, created, &out);
  return out;
}

}  // namespace tandem::text
