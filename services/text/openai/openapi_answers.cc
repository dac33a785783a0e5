#include "services/text/openai/openapi_answers.h"

namespace tandem::text {

const std::string_view kAnswerSchemas = R"json({
"Error": {
  "type": "object", "required": ["error"],
  "properties": {"error": {
    "type": "object", "required": ["message", "type", "param", "code"],
    "properties": {
      "message": {"type": "string"},
      "type": {"enum": ["invalid_request_error", "permission_error", "rate_limit_error",
                        "server_error"]},
      "param": {"type": ["string", "null"], "description": "The field that is wrong."},
      "code": {"type": ["string", "null"]}}}}},
"Usage": {
  "type": "object",
  "required": ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"],
  "properties": {
    "prompt_tokens": {"type": "integer", "minimum": 0, "description": "Each prompt counts once."},
    "completion_tokens": {"type": "integer", "minimum": 0, "description": "Of all choices."},
    "total_tokens": {"type": "integer", "minimum": 0},
    "prompt_tokens_details": {
      "type": "object", "required": ["cached_tokens"],
      "properties": {"cached_tokens": {"type": "integer", "minimum": 0}}}}},
"FinishReason": {
  "enum": ["stop", "length", "abort"],
  "description": "length is also a full context and a deadline. abort: an error follows."},
"StopReason": {
  "type": ["string", "integer", "null"],
  "description": "The stop string or the id of stop_token_ids that ended the choice."},
"Extras": {
  "type": "object",
  "required": ["finish_reason", "stop", "stop_token_id", "request_id", "seed", "counters",
               "timings_ms"],
  "properties": {
    "finish_reason": {"enum": ["stop_string", "stop_token", "end_of_text", "max_tokens",
                               "context_full", "deadline", "cancelled", "error"]},
    "stop": {"type": ["string", "null"]},
    "stop_token_id": {"type": ["integer", "null"], "description": "Also the model's own."},
    "request_id": {"type": "string"},
    "seed": {"type": "string", "pattern": "^[0-9]{1,20}$"},
    "counters": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0},
                 "description": "How the tokens were decided."},
    "timings_ms": {
      "type": "object", "required": ["queue", "prefill", "decode"],
      "additionalProperties": {"type": "number", "minimum": 0}},
    "tokens": {"$ref": "#/components/schemas/TokenDetails"}}},
"TokenDetails": {
  "type": "array", "description": "How each token was decided.",
  "items": {
    "type": "object", "required": ["decided", "ahead", "worker", "us"],
    "properties": {
      "decided": {"enum": ["lists", "fetched"]},
      "ahead": {"type": "boolean"},
      "worker": {"type": "integer", "minimum": -1},
      "us": {"type": "integer", "minimum": 0},
      "probability": {"type": "number", "minimum": 0, "maximum": 1}}}},
"ChunkExtras": {
  "type": "object", "additionalProperties": false,
  "description": "request_id and seed are in a choice's first chunk.",
  "properties": {
    "request_id": {"type": "string"},
    "seed": {"type": "string", "pattern": "^[0-9]{1,20}$"},
    "tokens": {"$ref": "#/components/schemas/TokenDetails"}}},
"TokenIds": {"type": "array", "items": {"type": "integer", "minimum": 0}},
"Logprob": {"type": "number", "minimum": -9999,
            "description": "Natural logarithm, of the model's own distribution."},
"PromptLogprobs": {
  "type": "array", "description": "Of each token of the prompt, by token id; null for the first.",
  "items": {
    "type": ["object", "null"],
    "additionalProperties": {
      "type": "object", "required": ["logprob", "rank", "decoded_token"],
      "properties": {
        "logprob": {"$ref": "#/components/schemas/Logprob"},
        "rank": {"type": "integer", "minimum": 1},
        "decoded_token": {"type": "string"}}}}},
"CompletionLogprobs": {
  "type": ["object", "null"],
  "required": ["tokens", "token_logprobs", "top_logprobs", "text_offset"],
  "properties": {
    "tokens": {"type": "array", "items": {"type": "string"}},
    "token_logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
    "top_logprobs": {"type": "array", "items": {
      "type": ["object", "null"],
      "additionalProperties": {"$ref": "#/components/schemas/Logprob"}}},
    "text_offset": {"type": "array", "items": {"type": "integer", "minimum": 0},
                    "description": "In characters of the choice's text."}}},
"CompletionChoice": {
  "type": "object", "required": ["index", "text", "logprobs", "finish_reason"],
  "properties": {
    "index": {"type": "integer", "minimum": 0},
    "text": {"type": "string"},
    "logprobs": {"$ref": "#/components/schemas/CompletionLogprobs"},
    "finish_reason": {"anyOf": [{"$ref": "#/components/schemas/FinishReason"},
                                {"type": "null"}]},
    "stop_reason": {"$ref": "#/components/schemas/StopReason"},
    "token_ids": {"$ref": "#/components/schemas/TokenIds"},
    "prompt_token_ids": {"$ref": "#/components/schemas/TokenIds"},
    "prompt_logprobs": {"$ref": "#/components/schemas/PromptLogprobs"},
    "tandem": {"anyOf": [{"$ref": "#/components/schemas/Extras"},
                         {"$ref": "#/components/schemas/ChunkExtras"}]}}},
"Completion": {
  "type": "object",
  "required": ["id", "object", "created", "model", "system_fingerprint", "choices"],
  "properties": {
    "id": {"type": "string"},
    "object": {"const": "text_completion"},
    "created": {"type": "integer", "minimum": 0},
    "model": {"type": "string"},
    "system_fingerprint": {"type": "string", "description": "Equal means equal tokens."},
    "choices": {"type": "array", "items": {"$ref": "#/components/schemas/CompletionChoice"}},
    "usage": {"anyOf": [{"$ref": "#/components/schemas/Usage"}, {"type": "null"}]}}},
"ChatToken": {
  "type": "object", "required": ["token", "logprob", "bytes"],
  "properties": {
    "token": {"type": "string"},
    "logprob": {"$ref": "#/components/schemas/Logprob"},
    "bytes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}},
    "top_logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/ChatToken"}}}},
"ChatLogprobs": {
  "type": ["object", "null"], "required": ["content", "refusal"],
  "properties": {
    "content": {"type": "array", "items": {"$ref": "#/components/schemas/ChatToken"}},
    "refusal": {"type": "null"}}},
"ChatChoice": {
  "type": "object",
  "required": ["index", "message", "logprobs", "finish_reason", "stop_reason", "tandem"],
  "properties": {
    "index": {"type": "integer", "minimum": 0},
    "message": {
      "type": "object", "required": ["role", "content", "refusal"],
      "properties": {
        "role": {"const": "assistant"},
        "content": {"type": "string"},
        "refusal": {"type": "null"}}},
    "logprobs": {"$ref": "#/components/schemas/ChatLogprobs"},
    "finish_reason": {"$ref": "#/components/schemas/FinishReason"},
    "stop_reason": {"$ref": "#/components/schemas/StopReason"},
    "token_ids": {"$ref": "#/components/schemas/TokenIds"},
    "tandem": {"$ref": "#/components/schemas/Extras"}}},
"ChatCompletion": {
  "type": "object",
  "required": ["id", "object", "created", "model", "system_fingerprint", "choices", "usage"],
  "properties": {
    "id": {"type": "string"},
    "object": {"const": "chat.completion"},
    "created": {"type": "integer", "minimum": 0},
    "model": {"type": "string"},
    "system_fingerprint": {"type": "string", "description": "Equal means equal tokens."},
    "choices": {"type": "array", "items": {"$ref": "#/components/schemas/ChatChoice"}},
    "prompt_logprobs": {"$ref": "#/components/schemas/PromptLogprobs"},
    "usage": {"$ref": "#/components/schemas/Usage"}}},
"ChatCompletionChunk": {
  "type": "object",
  "required": ["id", "object", "created", "model", "system_fingerprint", "choices"],
  "properties": {
    "id": {"type": "string"},
    "object": {"const": "chat.completion.chunk"},
    "created": {"type": "integer", "minimum": 0},
    "model": {"type": "string"},
    "system_fingerprint": {"type": "string"},
    "choices": {"type": "array", "items": {
      "type": "object", "required": ["index", "delta", "logprobs", "finish_reason"],
      "properties": {
        "index": {"type": "integer", "minimum": 0},
        "delta": {"type": "object", "properties": {"role": {"const": "assistant"},
                                                   "content": {"type": "string"}}},
        "logprobs": {"$ref": "#/components/schemas/ChatLogprobs"},
        "finish_reason": {"anyOf": [{"$ref": "#/components/schemas/FinishReason"},
                                    {"type": "null"}]},
        "stop_reason": {"$ref": "#/components/schemas/StopReason"},
        "token_ids": {"$ref": "#/components/schemas/TokenIds"},
        "tandem": {"anyOf": [{"$ref": "#/components/schemas/Extras"},
                             {"$ref": "#/components/schemas/ChunkExtras"}]}}}},
    "usage": {"anyOf": [{"$ref": "#/components/schemas/Usage"}, {"type": "null"}]}}},
"Model": {
  "type": "object",
  "required": ["id", "object", "created", "owned_by", "root", "parent", "max_model_len", "tandem"],
  "properties": {
    "id": {"type": "string"},
    "object": {"const": "model"},
    "created": {"type": "integer", "minimum": 0},
    "owned_by": {"type": "string"},
    "root": {"type": "string"},
    "parent": {"type": "null"},
    "max_model_len": {"type": "integer", "minimum": 1, "description": "The context, in tokens."},
    "tandem": {
      "type": "object",
      "required": ["architecture", "vocab_size", "weights_fingerprint", "tokenizer_fingerprint",
                   "end_ids", "workers", "has_chat_template"],
      "properties": {
        "architecture": {"type": "string"},
        "vocab_size": {"type": "integer", "minimum": 1},
        "weights_fingerprint": {"type": "string"},
        "tokenizer_fingerprint": {"type": "string"},
        "end_ids": {"$ref": "#/components/schemas/TokenIds"},
        "workers": {"type": "integer", "minimum": 0},
        "has_chat_template": {"type": "boolean"}}}}},
"Models": {
  "type": "object", "required": ["object", "data"],
  "properties": {
    "object": {"const": "list"},
    "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}},
"Tokens": {
  "type": "object", "required": ["count", "tokens", "token_strs", "offsets"],
  "properties": {
    "count": {"type": "integer", "minimum": 0},
    "tokens": {"$ref": "#/components/schemas/TokenIds"},
    "token_strs": {"type": "array", "items": {"type": "string"},
                   "description": "As the vocabulary spells them."},
    "offsets": {"type": "array", "description": "[begin, end) in bytes of the prompt.",
                "items": {"type": "array", "minItems": 2, "maxItems": 2,
                          "items": {"type": "integer", "minimum": 0}}}}},
"Text": {
  "type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}}
})json";

const std::string_view kPaths = R"json({
"/v1/completions": {"post": {
  "operationId": "createCompletion",
  "summary": "Goes on with a text.",
  "requestBody": {"required": true, "content": {"application/json": {
    "schema": {"$ref": "#/components/schemas/CompletionRequest"},
    "example": {"prompt": "Once upon a time", "max_tokens": 16}}}},
  "responses": {"200": {
    "description": "The whole answer or, with stream, its chunks and [DONE].",
    "content": {
      "application/json": {"schema": {"$ref": "#/components/schemas/Completion"}},
      "text/event-stream": {"schema": {
        "type": "object", "required": ["data"], "description": "One event.",
        "properties": {"data": {
          "type": "string", "description": "The JSON of a Completion. Of the last event [DONE] or, where the stream fails, the JSON of an Error."}}}}}}},
  "errors": [400, 401, 403, 404, 408, 413, 429, 431, 499, 500, 503, 504]}},
"/v1/chat/completions": {"post": {
  "operationId": "createChatCompletion",
  "summary": "Answers a conversation.",
  "requestBody": {"required": true, "content": {"application/json": {
    "schema": {"$ref": "#/components/schemas/ChatCompletionRequest"},
    "example": {"messages": [{"role": "user", "content": "Hello"}]}}}},
  "responses": {"200": {
    "description": "The whole answer or, with stream, its chunks and [DONE].",
    "content": {
      "application/json": {"schema": {"$ref": "#/components/schemas/ChatCompletion"}},
      "text/event-stream": {"schema": {
        "type": "object", "required": ["data"], "description": "One event.",
        "properties": {"data": {
          "type": "string", "description": "The JSON of a ChatCompletionChunk. Of the last event [DONE] or, where the stream fails, the JSON of an Error."}}}}}}},
  "errors": [400, 401, 403, 404, 408, 413, 429, 431, 499, 500, 503, 504]}},
"/v1/models": {"get": {
  "operationId": "listModels",
  "summary": "The models that are served.",
  "responses": {"200": {
    "description": "The models.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Models"}}}}},
  "errors": [400, 401, 403, 408, 431, 500, 503]}},
"/v1/models/{model}": {"get": {
  "operationId": "getModel",
  "summary": "One model.",
  "parameters": [{"name": "model", "in": "path", "required": true,
                  "schema": {"type": "string", "minLength": 1, "maxLength": 1024,
                             "pattern": "^[^\\u0000-\\u001f\\u007f]+$"}}],
  "responses": {"200": {
    "description": "The model.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Model"}}}}},
  "errors": [400, 401, 403, 404, 408, 431, 500, 503]}},
"/tokenize": {"post": {
  "operationId": "tokenize",
  "summary": "The tokens of a text.",
  "requestBody": {"required": true, "content": {"application/json": {
    "schema": {"$ref": "#/components/schemas/TokenizeRequest"},
    "example": {"prompt": "Hello, world"}}}},
  "responses": {"200": {
    "description": "The tokens.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Tokens"}}}}},
  "errors": [400, 401, 403, 404, 408, 413, 429, 431, 499, 500, 503, 504]}},
"/detokenize": {"post": {
  "operationId": "detokenize",
  "summary": "The text of tokens.",
  "requestBody": {"required": true, "content": {"application/json": {
    "schema": {"$ref": "#/components/schemas/DetokenizeRequest"},
    "example": {"tokens": [1, 2, 3]}}}},
  "responses": {"200": {
    "description": "The text.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Text"}}}}},
  "errors": [400, 401, 403, 404, 408, 413, 429, 431, 499, 500, 503, 504]}},
"/health": {"get": {
  "operationId": "getHealth",
  "summary": "Whether requests are served.",
  "security": [],
  "responses": {"200": {"description": "They are."}},
  "errors": [400, 408, 431, 500, 503]}},
"/version": {"get": {
  "operationId": "getVersion",
  "summary": "The server's version.",
  "security": [],
  "responses": {"200": {
    "description": "The version.",
    "content": {"application/json": {"schema": {
      "type": "object", "required": ["version"],
      "properties": {"version": {"type": "string"}}}}}}},
  "errors": [400, 408, 431, 500, 503]}},
"/metrics": {"get": {
  "operationId": "getMetrics",
  "summary": "Prometheus metrics.",
  "responses": {"200": {
    "description": "The text format.",
    "content": {"text/plain": {"schema": {"type": "string"}}}}},
  "errors": [400, 401, 403, 408, 431, 500, 503]}},
"/openapi.json": {"get": {
  "operationId": "getDocument",
  "summary": "This document.",
  "responses": {"200": {
    "description": "OpenAPI 3.1.",
    "content": {"application/json": {"schema": {"type": "object"}}}}},
  "errors": [400, 401, 403, 408, 431, 500, 503]}}
})json";

}  // namespace tandem::text
