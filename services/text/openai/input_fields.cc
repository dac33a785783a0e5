// Fields of completions whose values are more than one number or text.
#include <charconv>
#include <limits>
#include <string>
#include <utility>

#include "services/text/openai/completion_fields.h"

namespace tandem::text {
namespace {

using nlohmann::json;

constexpr int64_t kMaxRoleBytes = 64;

std::string At(std::string_view field, size_t index) {
  return std::string(field) + "[" + std::to_string(index) + "]";
}

// One prompt, of text or of ids.
absl::Status AddPrompt(std::string_view field, const json& value, CompletionDraft* draft) {
  v1::GenerateRequest& request = draft->call.requests.emplace_back();
  if (value.is_string()) {
    request.set_prompt(value.get_ref<const std::string&>());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(field, value, 1, kMaxBodyBytes));
  request.mutable_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

// Text parts, joined.
absl::StatusOr<std::string> ReadParts(const std::string& field, const json& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part = At(field, i);
    const json& value = parts[i];
    if (!value.is_object()) {
      return FieldError(part, " is ", Shown(value), ": it must be a part of type \"text\"");
    }
    const auto type = value.find("type");
    if (type == value.end()) return FieldError(part + ".type", " is missing");
    RETURN_IF_ERROR(ReadOnly(part + ".type", *type, R"(["text"])"));
    constexpr std::string_view kMembers[] = {"type", "text"};
    RETURN_IF_ERROR(CheckMembers(part, value, kMembers));
    const auto given = value.find("text");
    if (given == value.end()) return FieldError(part + ".text", " is missing");
    ASSIGN_OR_RETURN(const std::string one, ReadText(part + ".text", *given, kMaxBodyBytes));
    text += one;
  }
  return text;
}

// What a client may send back from an answer, or leave empty, but not use.
struct Unsupported {
  std::string_view name;
  std::string_view allowed;
};
constexpr Unsupported kUnsupported[] = {
    {"name", "[]"},          {"refusal", "[]"},      {"audio", "[]"},
    {"function_call", "[]"}, {"tool_call_id", "[]"}, {"tool_calls", "[[]]"},
    {"annotations", "[[]]"},
};

absl::Status CheckMember(const std::string& message, const std::string& name, const json& value) {
  if (name == "role" || name == "content") return absl::OkStatus();
  const std::string field = message + "." + ShownName(name);
  for (const Unsupported& known : kUnsupported) {
    if (known.name != name) continue;
    return value.is_null() ? absl::OkStatus() : ReadOnly(field, value, known.allowed);
  }
  return FieldError(field, " is no field of a message");
}

absl::Status AddMessage(const std::string& field, const json& value, CompletionDraft* draft) {
  if (!value.is_object()) {
    return FieldError(field, " is ", Shown(value), ": it must be an object");
  }
  for (const auto& member : value.items()) {
    RETURN_IF_ERROR(CheckMember(field, member.key(), member.value()));
  }
  v1::Message& message = *draft->shared.mutable_chat()->add_messages();
  const auto role = value.find("role");
  if (role == value.end()) return FieldError(field + ".role", " is missing");
  ASSIGN_OR_RETURN(*message.mutable_role(), ReadText(field + ".role", *role, kMaxRoleBytes));
  if (message.role().empty()) return FieldError(field + ".role", " is empty");
  const std::string content_field = field + ".content";
  const auto content = value.find("content");
  if (content == value.end()) return FieldError(content_field, " is missing");
  if (content->is_string()) {
    message.set_content(content->get_ref<const std::string&>());
  } else if (content->is_array()) {
    ASSIGN_OR_RETURN(*message.mutable_content(), ReadParts(content_field, *content));
  } else {
    return FieldError(content_field, " is ", Shown(*content),
                      ": it must be a string or an array of parts");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadPrompt(const json& value, CompletionDraft* draft) {
  if (value.is_string()) return AddPrompt("prompt", value, draft);
  if (!value.is_array()) {
    return FieldError("prompt", " is ", Shown(value), ": it must be a string or an array");
  }
  if (value.empty()) return FieldError("prompt", " is empty: it must have at least one element");
  if (value[0].is_number()) return AddPrompt("prompt", value, draft);
  draft->call.names.many_prompts = true;
  if (value.size() > static_cast<size_t>(kMaxPrompts)) {
    return FieldError("prompt", " has ", value.size(), " prompts: at most ", kMaxPrompts);
  }
  const bool texts = value[0].is_string();
  for (size_t i = 0; i < value.size(); ++i) {
    if (texts ? !value[i].is_string() : !value[i].is_array()) {
      return FieldError(At("prompt", i), " is ", Shown(value[i]), ": it must be ",
                        i > 0 && texts ? "a string, as prompt[0]"
                        : i > 0        ? "an array of token ids, as prompt[0]"
                                       : "a string, a token id or an array of token ids");
    }
    RETURN_IF_ERROR(AddPrompt(At("prompt", i), value[i], draft));
  }
  return absl::OkStatus();
}

absl::Status ReadMessages(const json& value, CompletionDraft* draft) {
  if (!value.is_array()) {
    return FieldError("messages", " is ", Shown(value), ": it must be an array of messages");
  }
  if (value.empty()) return FieldError("messages", " is empty: it must have at least one message");
  if (value.size() > static_cast<size_t>(kMaxChatMessages)) {
    return FieldError("messages", " has ", value.size(), " messages: at most ", kMaxChatMessages);
  }
  for (size_t i = 0; i < value.size(); ++i) {
    RETURN_IF_ERROR(AddMessage(At("messages", i), value[i], draft));
  }
  return absl::OkStatus();
}

absl::Status ReadStop(const json& value, CompletionDraft* draft) {
  auto& stops = *draft->shared.mutable_stopping()->mutable_stop_strings();
  const auto add = [&](std::string_view field, const json& stop) -> absl::Status {
    if (!stop.is_string()) {
      return FieldError(field, " is ", Shown(stop), ": it must be a string");
    }
    const std::string& text = stop.get_ref<const std::string&>();
    if (text.empty() || text.size() > static_cast<size_t>(kMaxStopBytes)) {
      return FieldError(field, " has ", text.size(), " bytes: it must have 1 to ", kMaxStopBytes);
    }
    *stops.Add() = text;
    return absl::OkStatus();
  };
  if (value.is_string()) {
    draft->call.names.one_stop = true;
    return add("stop", value);
  }
  if (!value.is_array()) {
    return FieldError("stop", " is ", Shown(value), ": it must be a string or an array of strings");
  }
  if (value.size() > static_cast<size_t>(kMaxStops)) {
    return FieldError("stop", " has ", value.size(), " strings: at most ", kMaxStops);
  }
  for (size_t i = 0; i < value.size(); ++i) RETURN_IF_ERROR(add(At("stop", i), value[i]));
  return absl::OkStatus();
}

absl::Status ReadSeed(const json& value, CompletionDraft* draft) {
  uint64_t seed = 0;
  if (value.is_number_unsigned()) {
    seed = value.get<uint64_t>();
  } else if (value.is_string()) {
    const std::string& digits = value.get_ref<const std::string&>();
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, seed);
    if (error != std::errc() || stop != end) {
      return FieldError("seed", " is ", Shown(value), ": its digits must be 0 to ",
                        std::numeric_limits<uint64_t>::max());
    }
  } else {
    if (!value.is_number()) {
      return FieldError("seed", " is ", Shown(value),
                        ": it must be an integer, or a string of digits");
    }
    auto integer = ReadInteger("seed", value, std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max());
    if (!integer.ok()) {
      return FieldError("seed", " is ", Shown(value), ": it must be an integer of 64 bits, ",
                        std::numeric_limits<int64_t>::min(), " to ",
                        std::numeric_limits<uint64_t>::max());
    }
    seed = static_cast<uint64_t>(*integer);
  }
  draft->shared.mutable_sampling()->set_seed(seed);
  return absl::OkStatus();
}

absl::Status ReadTemperature(const json& value, CompletionDraft* draft) {
  if (!value.is_number()) {
    return FieldError("temperature", " is ", Shown(value), ": it must be a number");
  }
  const double temperature = value.get<double>();
  if (temperature != 0.0 &&
      !(temperature >= kLeastTemperature && temperature <= kMostTemperature)) {
    return FieldError("temperature", " is ", Shown(value), ": it must be 0, or ", kLeastTemperature,
                      " to ", kMostTemperature);
  }
  draft->shared.mutable_sampling()->set_temperature(static_cast<float>(temperature));
  return absl::OkStatus();
}

absl::Status ReadLogitBias(const json& value, CompletionDraft* draft) {
  if (!value.is_object()) {
    return FieldError("logit_bias", " is ", Shown(value),
                      ": it must be an object of token ids and numbers");
  }
  if (value.size() > static_cast<size_t>(kMaxBiases)) {
    return FieldError("logit_bias", " has ", value.size(), " ids: at most ", kMaxBiases);
  }
  auto& biases = *draft->shared.mutable_sampling()->mutable_logit_bias();
  for (const auto& member : value.items()) {
    const std::string& name = member.key();
    const std::string field = "logit_bias." + ShownName(name);
    int32_t id = -1;
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data(), end, id);
    // "07" would be a second name of 7.
    if (error != std::errc() || stop != end || name != std::to_string(id) || id < 0) {
      return FieldError(field, " is no token id: ids are decimal, 0 to ",
                        std::numeric_limits<int32_t>::max());
    }
    ASSIGN_OR_RETURN(const double bias,
                     ReadNumber(field, member.value(), -kMaxAbsBias, kMaxAbsBias));
    biases[id] = static_cast<float>(bias);
  }
  return absl::OkStatus();
}

absl::Status ReadStreamOptions(const json& value, CompletionDraft* draft) {
  constexpr std::string_view kMembers[] = {"include_usage", "include_obfuscation",
                                           "continuous_usage_stats"};
  RETURN_IF_ERROR(CheckMembers("stream_options", value, kMembers));
  draft->has_stream_options = true;
  for (const auto& member : value.items()) {
    if (member.value().is_null()) continue;
    const std::string field = "stream_options." + member.key();
    if (member.key() != "include_usage") {
      RETURN_IF_ERROR(ReadOnly(field, member.value(), "[false]"));
      continue;
    }
    ASSIGN_OR_RETURN(draft->call.include_usage, ReadBoolean(field, member.value()));
  }
  return absl::OkStatus();
}

absl::Status ReadTandem(const json& value, CompletionDraft* draft) {
  constexpr std::string_view kMembers[] = {"token_details"};
  RETURN_IF_ERROR(CheckMembers("tandem", value, kMembers));
  const auto details = value.find("token_details");
  if (details == value.end() || details->is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(draft->call.shape.token_details, ReadBoolean("tandem.token_details", *details));
  return absl::OkStatus();
}

}  // namespace tandem::text
