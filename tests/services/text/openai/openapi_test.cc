// The OpenAPI document against the parsers: it admits no field and no value that they do not know,
// and leaves none out.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/sampling/parameters.h"
#include "services/text/openai/completion_fields.h"
#include "services/text/openai/completions.h"
#include "services/text/openai/error.h"
#include "services/text/openai/other.h"

namespace tandem::text {
namespace {

using nlohmann::json;

const json& Document() {
  static const json& document = *new json(json::parse(OpenApiJson()));
  return document;
}

const json& Schema(const std::string& name) {
  return Document().at("components").at("schemas").at(name);
}

struct Request {
  const char* schema;
  json valid;  // the least that the parser takes
  absl::Status (*parse)(const std::string& body);
};

const Request kRequests[] = {
    {"CompletionRequest",
     {{"prompt", "a"}},
     [](const std::string& body) {
       return ParseCompletionCall(Endpoint::kCompletions, body).status();
     }},
    {"ChatCompletionRequest",
     {{"messages", {{{"role", "user"}, {"content", "a"}}}}},
     [](const std::string& body) {
       return ParseCompletionCall(Endpoint::kChatCompletions, body).status();
     }},
    {"TokenizeRequest",
     {{"prompt", "a"}},
     [](const std::string& body) { return ParseTokenizeCall(body).status(); }},
    {"DetokenizeRequest",
     {{"tokens", {1}}},
     [](const std::string& body) { return ParseDetokenizeCall(body).status(); }},
};

TEST(OpenApi, EveryReferenceLeadsSomewhere) {
  int references = 0;
  const std::function<void(const json&)> walk = [&](const json& value) {
    if (value.is_object() && value.contains("$ref")) {
      const std::string path = value["$ref"].get<std::string>().substr(1);
      EXPECT_TRUE(Document().contains(json::json_pointer(path))) << path;
      ++references;
    }
    if (value.is_structured()) {
      for (const json& part : value) walk(part);
    }
  };
  walk(Document());
  EXPECT_GT(references, 50);
}

TEST(OpenApi, HasEveryPathAndEveryErrorOfIt) {
  const json& paths = Document()["paths"];
  EXPECT_EQ(Document()["openapi"], "3.1.0");
  for (const char* path :
       {"/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/{model}", "/tokenize",
        "/detokenize", "/health", "/version", "/metrics", "/openapi.json"}) {
    ASSERT_TRUE(paths.contains(path)) << path;
    for (const json& operation : paths[path]) {
      EXPECT_TRUE(operation["responses"].contains("200")) << path;
      EXPECT_TRUE(operation["responses"].contains("500")) << path;
      EXPECT_FALSE(operation.contains("errors")) << path;
    }
  }
  EXPECT_EQ(paths.size(), 10u);
  for (const char* status : {"400", "404", "429", "503", "504"}) {
    EXPECT_TRUE(paths["/v1/completions"]["post"]["responses"].contains(status)) << status;
  }
}

TEST(OpenApi, EveryFieldIsKnownToItsParserAndEveryOtherIsRefused) {
  for (const Request& request : kRequests) {
    const json& schema = Schema(request.schema);
    EXPECT_EQ(schema["additionalProperties"], false);
    ASSERT_TRUE(request.parse(request.valid.dump()).ok()) << request.schema;
    for (const auto& property : schema["properties"].items()) {
      json body = request.valid;
      body[property.key()] = nullptr;
      const absl::Status status = request.parse(body.dump());
      const bool required = request.valid.contains(property.key());
      EXPECT_EQ(status.ok(), !required) << property.key() << ": " << status;
      EXPECT_FALSE(property.value()["description"].get<std::string>().empty()) << property.key();
    }
    for (const json& required : schema["required"]) {
      const std::string name = required;
      EXPECT_TRUE(request.valid.contains(name));
      EXPECT_EQ(schema["properties"][name].dump().find("\"null\""), std::string::npos) << name;
    }
    EXPECT_EQ(schema["required"].size(), request.valid.size());
    json body = request.valid;
    body["no_such_field"] = nullptr;
    EXPECT_FALSE(request.parse(body.dump()).ok());
  }
  size_t fields = 0;
  for (const Field<CompletionDraft>& field : CompletionFields()) {
    for (const auto& [schema, bit] : {std::pair("CompletionRequest", kOfCompletions),
                                      std::pair("ChatCompletionRequest", kOfChat)}) {
      const bool here = (field.where & bit) != 0;
      fields += here;
      EXPECT_TRUE(!here || Schema(schema)["properties"].contains(std::string(field.name)));
    }
  }
  EXPECT_EQ(fields, Schema("CompletionRequest")["properties"].size() +
                        Schema("ChatCompletionRequest")["properties"].size())
      << "a field has two rules for one endpoint";
}

// The values at the borders of a schema of one type, and those just outside.
void Borders(const json& schema, std::vector<json>* inside, std::vector<json>* outside) {
  if (schema.contains("enum")) {
    for (const json& value : schema["enum"]) inside->push_back(value);
    outside->push_back("no such value");
  }
  if (schema.contains("minimum")) {
    inside->push_back(schema["minimum"]);
    inside->push_back(schema["maximum"]);
    if (schema["type"] == json({"integer", "null"})) {
      outside->push_back(schema["minimum"].get<int64_t>() - 1);
      outside->push_back(schema["maximum"].get<int64_t>() + 1);
    } else {
      outside->push_back(std::nextafter(schema["minimum"].get<double>(), -INFINITY));
      outside->push_back(std::nextafter(schema["maximum"].get<double>(), INFINITY));
    }
  }
  if (schema.contains("maxLength") && schema["maxLength"] < 10'000) {
    inside->push_back(std::string(schema["maxLength"].get<size_t>(), 'x'));
    outside->push_back(std::string(schema["maxLength"].get<size_t>() + 1, 'x'));
  }
  if (schema.contains("maxItems") && schema.contains("items") && schema["maxItems"] < 100'000) {
    const auto ids = [&](size_t count) {
      std::vector<int> ids(count, 1);
      if (schema.contains("uniqueItems")) std::iota(ids.begin(), ids.end(), 0);
      return ids;
    };
    const size_t most = schema["maxItems"];
    inside->push_back(ids(most));
    outside->push_back(ids(most + 1));
    const size_t least = schema.value("minItems", 0);
    inside->push_back(ids(least));
    if (least > 0) outside->push_back(json::array());
  }
  if (schema.value("type", json()) == json({"boolean", "null"})) {
    inside->push_back(true);
    outside->push_back(1);
  }
}

TEST(OpenApi, BordersOfSimpleFieldsAreTheParsers) {
  int borders = 0;
  for (const Request& request : kRequests) {
    for (const auto& property : Schema(request.schema)["properties"].items()) {
      if (request.valid.contains(property.key())) continue;
      std::vector<json> inside;
      std::vector<json> outside;
      Borders(property.value(), &inside, &outside);
      for (const bool in : {true, false}) {
        for (const json& value : in ? inside : outside) {
          json body = request.valid;
          body[property.key()] = value;
          // What a field needs beside it is not the schema's.
          if (property.key() == "top_logprobs") body["logprobs"] = true;
          if (property.key() == "best_of") body["n"] = value;
          if (property.key() == "max_tokens" && !request.valid.contains("messages")) {
            body["echo"] = true;
          }
          const absl::Status status = request.parse(body.dump());
          EXPECT_EQ(status.ok(), in) << body.dump().substr(0, 200) << ": " << status;
          ++borders;
        }
      }
    }
  }
  EXPECT_GT(borders, 300);
}

// Whether a schema of the few words that dependentSchemas uses admits a value.
bool Admits(const json& schema, const json& value) {
  const auto is = [&](const std::string& type) {
    return type == "null"      ? value.is_null()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "integer" ? value.is_number_integer()
                               : false;
  };
  for (const auto& word : schema.items()) {
    const json& said = word.value();
    bool holds = false;
    if (word.key() == "anyOf") {
      holds = std::any_of(said.begin(), said.end(),
                          [&](const json& one) { return Admits(one, value); });
    } else if (word.key() == "type") {
      const json types = said.is_array() ? said : json::array({said});
      holds = std::any_of(types.begin(), types.end(), is);
    } else if (word.key() == "const") {
      holds = value == said;
    } else if (word.key() == "enum") {
      holds = std::find(said.begin(), said.end(), value) != said.end();
    } else if (word.key() == "minimum") {
      holds = !value.is_number() || value >= said;
    } else if (word.key() == "items") {
      holds = !value.is_array() || std::all_of(value.begin(), value.end(),
                                               [&](const json& one) { return Admits(said, one); });
    } else if (word.key() == "required") {
      holds = std::all_of(said.begin(), said.end(), [&](const json& name) {
        return value.contains(name.get<std::string>());
      });
    } else if (word.key() == "properties") {
      holds = std::all_of(said.items().begin(), said.items().end(), [&](const auto& property) {
        return !value.contains(property.key()) || Admits(property.value(), value[property.key()]);
      });
    } else {
      ADD_FAILURE() << word.key() << " is not known here";
    }
    if (!holds) return false;
  }
  return true;
}

TEST(OpenApi, FieldsThatNeedOthersNeedWhatTheParserSays) {
  const json absent = "absent";
  struct Case {
    const Request* request;
    std::vector<std::pair<const char*, std::vector<json>>> fields;
  };
  const std::vector<json> flags = {absent, nullptr, false, true};
  const std::vector<json> counts = {absent, nullptr, 0, 1};
  const Case cases[] = {
      {&kRequests[0],
       {{"stream", flags},
        {"stream_options", {absent, nullptr, json::object()}},
        {"prompt_logprobs", counts},
        {"max_tokens", counts},
        {"min_tokens", counts},
        {"echo", flags},
        {"add_special_tokens", flags},
        {"prompt", {"a", {"a", "b"}, {1, 2}, {{1}, {2}}}}}},
      {&kRequests[1],
       {{"stream", flags},
        {"stream_options", {absent, nullptr, json::object()}},
        {"prompt_logprobs", counts},
        {"logprobs", flags},
        {"top_logprobs", counts}}},
  };
  for (const Case& c : cases) {
    const json& needs = Schema(c.request->schema)["dependentSchemas"];
    std::set<std::string> broken;
    size_t total = 1;
    for (const auto& [name, values] : c.fields) total *= values.size();
    for (size_t i = 0; i < total; ++i) {
      json body = c.request->valid;
      size_t rest = i;
      for (const auto& [name, values] : c.fields) {
        const json& value = values[rest % values.size()];
        if (value != absent) body[name] = value;
        rest /= values.size();
      }
      bool admitted = true;
      for (const auto& need : needs.items()) {
        if (!body.contains(need.key()) || Admits(need.value(), body)) continue;
        admitted = false;
        broken.insert(need.key());
      }
      const absl::Status status = c.request->parse(body.dump());
      ASSERT_EQ(status.ok(), admitted) << body << ": " << status;
    }
    EXPECT_EQ(broken.size(), needs.size());
  }
}

TEST(OpenApi, ExamplesAreTakenByTheParsers) {
  int examples = 0;
  for (const json& path : Document()["paths"]) {
    for (const json& operation : path) {
      if (!operation.contains("requestBody")) continue;
      const json& content = operation["requestBody"]["content"]["application/json"];
      for (const Request& request : kRequests) {
        if (content["schema"]["$ref"] != std::string("#/components/schemas/") + request.schema) {
          continue;
        }
        EXPECT_TRUE(request.parse(content["example"].dump()).ok()) << content["example"];
        ++examples;
      }
    }
  }
  EXPECT_EQ(examples, 4);
}

TEST(OpenApi, RangesOfSamplingAreThoseOfTheSampler) {
  const json& properties = Schema("CompletionRequest")["properties"];
  const std::pair<const char*, float SamplingParameters::*> fields[] = {
      {"top_p", &SamplingParameters::top_p},
      {"min_p", &SamplingParameters::min_p},
      {"presence_penalty", &SamplingParameters::presence_penalty},
      {"frequency_penalty", &SamplingParameters::frequency_penalty},
      {"repetition_penalty", &SamplingParameters::repetition_penalty},
  };
  const auto takes = [](float SamplingParameters::*field, float value) {
    SamplingParameters parameters;
    parameters.*field = value;
    return Validate(parameters, 1000).ok();
  };
  for (const auto& [name, field] : fields) {
    const float low = properties[name]["minimum"];
    const float high = properties[name]["maximum"];
    EXPECT_TRUE(takes(field, low) && takes(field, high)) << name;
    EXPECT_FALSE(takes(field, std::nextafterf(low, -INFINITY))) << name;
    EXPECT_FALSE(takes(field, std::nextafterf(high, INFINITY))) << name;
  }
  const auto& temperature = &SamplingParameters::temperature;
  const json& range = properties["temperature"]["anyOf"][2];
  EXPECT_EQ(range["minimum"], kLeastTemperature);
  EXPECT_EQ(range["maximum"], kMostTemperature);
  EXPECT_TRUE(takes(temperature, 0.0f) && takes(temperature, range["minimum"]) &&
              takes(temperature, range["maximum"]));
  EXPECT_FALSE(takes(temperature, std::nextafterf(range["minimum"], 0.0f)));
  EXPECT_FALSE(takes(temperature, std::nextafterf(range["maximum"], INFINITY)));
  const json& bias = properties["logit_bias"];
  EXPECT_EQ(bias["maxProperties"], kMaxBiases);
  EXPECT_EQ(bias["additionalProperties"]["maximum"], kMaxAbsBias);
  SamplingParameters parameters;
  parameters.logit_bias = {{1, static_cast<float>(kMaxAbsBias)}};
  EXPECT_TRUE(Validate(parameters, 1000).ok());
  parameters.logit_bias[0].second = std::nextafterf(kMaxAbsBias, INFINITY);
  EXPECT_FALSE(Validate(parameters, 1000).ok());
  EXPECT_EQ(properties["allowed_token_ids"]["uniqueItems"], true);
  parameters.logit_bias.clear();
  parameters.allowed_ids = {1, 2};
  EXPECT_TRUE(Validate(parameters, 1000).ok());
  parameters.allowed_ids = {1, 1};
  EXPECT_FALSE(Validate(parameters, 1000).ok());
}

TEST(OpenApi, LimitsOfOtherFieldsAreTheParsers) {
  const json& text = Schema("CompletionRequest")["properties"];
  EXPECT_EQ(text["prompt"]["anyOf"][1]["maxItems"], kMaxPrompts);
  EXPECT_EQ(text["prompt"]["anyOf"][3]["maxItems"], kMaxPrompts);
  EXPECT_EQ(text["stop"]["anyOf"][1]["maxLength"], kMaxStopBytes);
  EXPECT_EQ(text["stop"]["anyOf"][2]["maxItems"], kMaxStops);
  EXPECT_EQ(text["stop"]["anyOf"][2]["items"]["maxLength"], kMaxStopBytes);
  EXPECT_EQ(text["seed"]["anyOf"][1]["minimum"], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(text["seed"]["anyOf"][1]["maximum"], std::numeric_limits<uint64_t>::max());
  const json& chat = Schema("ChatCompletionRequest")["properties"];
  EXPECT_EQ(chat["messages"]["maxItems"], kMaxChatMessages);
  // Members of a message.
  json message = {{"role", "user"}, {"content", "a"}};
  for (const auto& member : chat["messages"]["items"]["properties"].items()) {
    if (message.contains(member.key())) continue;
    for (const json& value : member.value()["enum"]) {
      json given = message;
      given[member.key()] = value;
      EXPECT_TRUE(kRequests[1].parse(json{{"messages", {given}}}.dump()).ok()) << given;
    }
  }
}

TEST(OpenApi, EveryStatusOfAnErrorIsDescribed) {
  for (int code = 1; code <= 16; ++code) {
    const HttpError error = ErrorOf(absl::Status(static_cast<absl::StatusCode>(code), "x"));
    if (error.status == 501) continue;  // no operation is unimplemented
    EXPECT_TRUE(Document()["components"]["responses"].contains(std::to_string(error.status)))
        << error.status;
    const json& types = Schema("Error")["properties"]["error"]["properties"]["type"]["enum"];
    const json type = json::parse(error.body)["error"]["type"];
    EXPECT_NE(std::find(types.begin(), types.end(), type), types.end()) << type;
  }
}

}  // namespace
}  // namespace tandem::text
