// The fields of /v1/completions and /v1/chat/completions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "services/text/openai/completions.h"
#include "services/text/openai/fields.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

inline constexpr uint8_t kOfCompletions = 1;
inline constexpr uint8_t kOfChat = 2;

// Ranges that CheckRequest has too.
inline constexpr int32_t kMaxN = 16;
inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr int32_t kMaxStops = 16;
inline constexpr int32_t kMaxStopBytes = 256;
inline constexpr int32_t kMaxChatMessages = 4096;
inline constexpr int32_t kMaxBiases = 1024;
inline constexpr int32_t kMaxAbsBias = 10'000;
inline constexpr int32_t kMaxListed = 16'384;
inline constexpr double kLeastTemperature = 1e-5;  // beside 0
inline constexpr double kMostTemperature = 100.0;

// What a body's fields say, before they are held against each other.
struct CompletionDraft {
  CompletionCall call;  // `requests` have the input alone
  v1::GenerateRequest shared;
  std::optional<int64_t> max_tokens;
  std::optional<int64_t> max_completion_tokens;
  std::optional<int64_t> best_of;
  std::optional<int64_t> top_logprobs;  // of a chat
  bool chat_logprobs = false;
  bool has_stream_options = false;
};

std::span<const Field<CompletionDraft>> CompletionFields();

// Fields with rules of their own (input_fields.cc).
inline constexpr std::string_view kPromptSchema = R"({
  "anyOf": [
    {"type": "string"},
    {"type": "array", "minItems": 1, "maxItems": 64, "items": {"type": "string"}},
    {"type": "array", "minItems": 1,
     "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}},
    {"type": "array", "minItems": 1, "maxItems": 64,
     "items": {"type": "array", "minItems": 1,
               "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}}}]})";
inline constexpr std::string_view kMessagesSchema = R"({
  "type": "array", "minItems": 1, "maxItems": 4096,
  "items": {
    "type": "object", "additionalProperties": false, "required": ["role", "content"],
    "properties": {
      "role": {"type": "string", "minLength": 1, "maxLength": 64,
               "description": "As the model's chat template knows them."},
      "content": {"anyOf": [
        {"type": "string"},
        {"type": "array", "items": {
          "type": "object", "additionalProperties": false, "required": ["type", "text"],
          "properties": {"type": {"enum": ["text"]}, "text": {"type": "string"}}}}]},
      "name": {"enum": [null]},
      "refusal": {"enum": [null]},
      "audio": {"enum": [null]},
      "function_call": {"enum": [null]},
      "tool_call_id": {"enum": [null]},
      "tool_calls": {"enum": [null, []]},
      "annotations": {"enum": [null, []]}}}})";
inline constexpr std::string_view kStopSchema = R"({
  "anyOf": [
    {"type": "null"},
    {"type": "string", "minLength": 1, "maxLength": 256},
    {"type": "array", "maxItems": 16,
     "items": {"type": "string", "minLength": 1, "maxLength": 256}}]})";
inline constexpr std::string_view kSeedSchema = R"({
  "anyOf": [
    {"type": "null"},
    {"type": "integer", "minimum": -9223372036854775808, "maximum": 18446744073709551615},
    {"type": "string", "pattern": "^[0-9]{1,20}$"}]})";
inline constexpr std::string_view kTemperatureSchema = R"({
  "anyOf": [
    {"type": "null"},
    {"enum": [0]},
    {"type": "number", "minimum": 1e-5, "maximum": 100}]})";
inline constexpr std::string_view kLogitBiasSchema = R"({
  "type": ["object", "null"], "maxProperties": 1024,
  "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"},
  "additionalProperties": {"type": "number", "minimum": -10000, "maximum": 10000}})";
inline constexpr std::string_view kStreamOptionsSchema = R"({
  "type": ["object", "null"], "additionalProperties": false,
  "properties": {
    "include_usage": {"type": ["boolean", "null"]},
    "include_obfuscation": {"enum": [false, null]},
    "continuous_usage_stats": {"enum": [false, null]}}})";
inline constexpr std::string_view kTandemSchema = R"({
  "type": ["object", "null"], "additionalProperties": false,
  "properties": {"token_details": {"type": ["boolean", "null"]}}})";

// What a field asks of others (completion_call.cc checks it), as far as a JSON schema can say it:
// a schema that the whole body has to match where the field is there.
inline constexpr std::string_view kNeedsOfBoth = R"({
  "stream_options": {
    "anyOf": [{"properties": {"stream_options": {"type": "null"}}},
              {"properties": {"stream": {"const": true}}, "required": ["stream"]}]},
  "prompt_logprobs": {
    "anyOf": [{"properties": {"prompt_logprobs": {"type": "null"}}},
              {"properties": {"stream": {"enum": [false, null]}}}]}})";
inline constexpr std::string_view kNeedsOfCompletions = R"({
  "max_tokens": {
    "anyOf": [{"properties": {"max_tokens": {"type": ["integer", "null"], "minimum": 1}}},
              {"properties": {"echo": {"const": true}, "min_tokens": {"enum": [0, null]}},
               "required": ["echo"]}]},
  "add_special_tokens": {
    "anyOf": [{"properties": {"add_special_tokens": {"type": "null"}}},
              {"properties": {"prompt": {"type": ["string", "array"],
                                         "items": {"type": "string"}}}}]}})";
inline constexpr std::string_view kNeedsOfChat = R"({
  "top_logprobs": {
    "anyOf": [{"properties": {"top_logprobs": {"enum": [0, null]}}},
              {"properties": {"logprobs": {"const": true}}, "required": ["logprobs"]}]}})";

absl::Status ReadPrompt(const nlohmann::json& value, CompletionDraft* draft);
absl::Status ReadMessages(const nlohmann::json& value, CompletionDraft* draft);
absl::Status ReadStop(const nlohmann::json& value, CompletionDraft* draft);
absl::Status ReadSeed(const nlohmann::json& value, CompletionDraft* draft);
absl::Status ReadTemperature(const nlohmann::json& value, CompletionDraft* draft);
absl::Status ReadLogitBias(const nlohmann::json& value, CompletionDraft* draft);
absl::Status ReadStreamOptions(const nlohmann::json& value, CompletionDraft* draft);
absl::Status ReadTandem(const nlohmann::json& value, CompletionDraft* draft);

}  // namespace tandem::text
