#include <nlohmann/json.hpp>

#include "services/text/openai/completion_fields.h"
#include "services/text/openai/openapi_answers.h"
#include "services/text/openai/other.h"
#include "services/text/openai/token_fields.h"

namespace tandem::text {
namespace {

using nlohmann::json;

struct ErrorAnswer {
  int status;
  std::string_view description;
};

constexpr ErrorAnswer kErrors[] = {
    {400, "The request is wrong: error.param is the field, error.message says the limit."},
    {401, "No API key, or none that is known."},
    {403, "The API key is not for this."},
    {404, "The model is not served."},
    {408, "The request did not come in time."},
    {413, "The body is too large."},
    {429, "Too much at once: again after Retry-After seconds."},
    {431, "The headers are too large."},
    {499, "The call was cancelled."},
    {500, "The server failed."},
    {503, "No worker serves the model now, or the server shuts down."},
    {504, "The deadline passed before the first token."},
};

json ErrorResponse(const ErrorAnswer& error) {
  json response = {
      {"description", error.description},
      {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
  if (error.status == 429 || error.status == 503) {
    response["headers"]["Retry-After"] = {{"description", "Seconds."},
                                          {"schema", {{"type", "integer"}, {"minimum", 1}}}};
  }
  return response;
}

// Each operation's list of errors becomes references to responses.
json Paths() {
  json paths = json::parse(kPaths);
  for (json& path : paths) {
    for (json& operation : path) {
      for (const json& status : operation["errors"]) {
        const std::string name = std::to_string(status.get<int>());
        operation["responses"][name] = {{"$ref", "#/components/responses/" + name}};
      }
      operation.erase("errors");
    }
  }
  return paths;
}

json CompletionSchema(uint8_t where, std::string_view needs) {
  json schema = FieldsSchema(CompletionFields(), where);
  schema["dependentSchemas"] = json::parse(kNeedsOfBoth);
  schema["dependentSchemas"].update(json::parse(needs));
  return schema;
}

std::string MakeDocument() {
  json schemas = json::parse(kAnswerSchemas);
  schemas["CompletionRequest"] = CompletionSchema(kOfCompletions, kNeedsOfCompletions);
  schemas["ChatCompletionRequest"] = CompletionSchema(kOfChat, kNeedsOfChat);
  schemas["TokenizeRequest"] = FieldsSchema(TokenizeFields(), kOfTokens);
  schemas["DetokenizeRequest"] = FieldsSchema(DetokenizeFields(), kOfTokens);
  json responses;
  for (const ErrorAnswer& error : kErrors) {
    responses[std::to_string(error.status)] = ErrorResponse(error);
  }
  const json document = {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Tandem"},
        {"version", "1"},
        {"description",
         "Text generation with OpenAI's completions and chat completions. A field that is not "
         "listed is refused; null is as good as absent. A body is read as JSON, whatever its "
         "Content-Type says."}}},
      {"security", {json::object(), {{"apiKey", json::array()}}}},
      {"paths", Paths()},
      {"components",
       {{"securitySchemes", {{"apiKey", {{"type", "http"}, {"scheme", "bearer"}}}}},
        {"responses", std::move(responses)},
        {"schemas", std::move(schemas)}}}};
  return document.dump();
}

}  // namespace

std::string_view OpenApiJson() {
  static const std::string& document = *new std::string(MakeDocument());
  return document;
}

}  // namespace tandem::text
