#include "services/text/openai/choice_json.h"

#include <algorithm>
#include <string_view>

#include "engine/text/utf8.h"
#include "services/text/openai/json_writer.h"

namespace tandem::text {
namespace {

// The elements of an array, each with a comma behind it.
void AppendArray(std::string_view elements, std::string* out) {
  if (!elements.empty()) elements.remove_suffix(1);
  out->push_back('[');
  out->append(elements);
  out->push_back(']');
}

void AddIds(const google::protobuf::RepeatedField<int32_t>& ids, std::string* out) {
  for (const int32_t id : ids) {
    AppendInteger(id, out);
    out->push_back(',');
  }
}

void AddDetails(const google::protobuf::RepeatedPtrField<v1::TokenDetail>& details,
                std::string* out) {
  for (const v1::TokenDetail& detail : details) {
    out->append(detail.fetched() ? "{\"decided\":\"fetched\"" : "{\"decided\":\"lists\"");
    out->append(detail.ahead() ? ",\"ahead\":true,\"worker\":" : ",\"ahead\":false,\"worker\":");
    AppendInteger(detail.worker(), out);
    out->append(",\"us\":");
    AppendInteger(detail.microseconds(), out);
    if (detail.has_probability()) {
      out->append(",\"probability\":");
      AppendProbability(detail.probability(), out);
    }
    out->append("},");
  }
}

void AppendTokenId(int32_t id, std::string* out) {
  out->append("\"token_id:");
  AppendInteger(id, out);
  out->push_back('"');
}

}  // namespace

void ChoiceJson::Add(const v1::Delta& delta) {
  AppendJsonEscaped(delta.text(), &text_);
  if (shape_.token_ids) AddIds(delta.token_ids(), delta.echo() ? &prompt_token_ids_ : &token_ids_);
  if (shape_.token_details) AddDetails(delta.token_details(), &token_details_);
  if (!shape_.logprobs) return;
  if (shape_.endpoint == Endpoint::kCompletions) return AddLegacy(delta);
  for (const v1::PositionLogprobs& position : delta.logprobs()) AddChat(position);
}

void ChoiceJson::Clear() {
  for (std::string* part : {&text_, &tokens_, &token_logprobs_, &top_logprobs_, &text_offset_,
                            &content_, &token_ids_, &prompt_token_ids_, &token_details_}) {
    part->clear();
  }
}

int64_t ChoiceJson::bytes() const {
  return static_cast<int64_t>(text_.size() + tokens_.size() + token_logprobs_.size() +
                              top_logprobs_.size() + text_offset_.size() + content_.size() +
                              token_ids_.size() + prompt_token_ids_.size() + token_details_.size());
}

void ChoiceJson::AppendLegacyToken(int32_t id, std::string_view bytes, std::string* out) const {
  if (shape_.tokens_as_ids) return AppendTokenId(id, out);
  if (FindInvalidUtf8(bytes) < 0) return AppendJsonString(bytes, out);
  out->append("\"bytes:");
  for (const char byte : bytes) {
    constexpr char kHex[] = "0123456789abcdef";
    out->append("\\\\x");
    out->push_back(kHex[static_cast<unsigned char>(byte) >> 4]);
    out->push_back(kHex[byte & 15]);
  }
  out->push_back('"');
}

void ChoiceJson::AddLegacy(const v1::Delta& delta) {
  offsets_.BeginText(delta.text());
  const bool has_ids = delta.token_ids_size() == delta.logprobs_size();
  for (int i = 0; i < delta.logprobs_size(); ++i) {
    const v1::PositionLogprobs& position = delta.logprobs(i);
    int64_t offset = 0;
    if (position.has_chosen()) {
      const v1::TokenLogprob& chosen = position.chosen();
      offset = offsets_.AddToken(chosen.token());
      AppendLegacyToken(chosen.id(), chosen.token(), &tokens_);
      AppendLogprob(chosen.logprob(), &token_logprobs_);
      AddLegacyTop(position);
    } else {
      behind_.clear();
      for (int later = i + 1; later < delta.logprobs_size(); ++later) {
        behind_ += delta.logprobs(later).chosen().token();
      }
      const std::string_view bytes = offsets_.AddUnknown(behind_, &offset);
      if (shape_.tokens_as_ids && has_ids) {
        AppendTokenId(delta.token_ids(i), &tokens_);
      } else {
        AppendJsonString(bytes, &tokens_);
      }
      token_logprobs_ += "null";
      top_logprobs_ += "null";
    }
    AppendInteger(offset, &text_offset_);
    for (std::string* part : {&tokens_, &token_logprobs_, &top_logprobs_, &text_offset_}) {
      part->push_back(',');
    }
  }
  offsets_.EndText();
}

// The most likely ones, and the chosen one if it is none of them. Tokens that are spelt alike
// cannot both be keys of an object: the more likely one stays.
void ChoiceJson::AddLegacyTop(const v1::PositionLogprobs& position) {
  const auto is_spelt_before = [&](const v1::TokenLogprob& token, int end) {
    return std::any_of(
        position.top().begin(), position.top().begin() + end, [&](const v1::TokenLogprob& other) {
          return shape_.tokens_as_ids ? other.id() == token.id() : other.token() == token.token();
        });
  };
  top_logprobs_.push_back('{');
  bool first = true;
  const auto add = [&](const v1::TokenLogprob& token, int end) {
    if (is_spelt_before(token, end)) return;
    if (!first) top_logprobs_.push_back(',');
    first = false;
    AppendLegacyToken(token.id(), token.token(), &top_logprobs_);
    top_logprobs_.push_back(':');
    AppendLogprob(token.logprob(), &top_logprobs_);
  };
  for (int i = 0; i < position.top_size(); ++i) add(position.top(i), i);
  add(position.chosen(), position.top_size());
  top_logprobs_.push_back('}');
}

void ChoiceJson::AppendChatToken(const v1::TokenLogprob& token, std::string* out) const {
  out->append("{\"token\":");
  if (shape_.tokens_as_ids) {
    AppendTokenId(token.id(), out);
  } else {
    AppendJsonString(token.token(), out);
  }
  out->append(",\"logprob\":");
  AppendLogprob(token.logprob(), out);
  out->append(",\"bytes\":[");
  bool first = true;
  for (const char byte : token.token()) {
    if (!first) out->push_back(',');
    first = false;
    AppendInteger(static_cast<unsigned char>(byte), out);
  }
  out->push_back(']');
}

void ChoiceJson::AddChat(const v1::PositionLogprobs& position) {
  AppendChatToken(position.chosen(), &content_);
  content_ += ",\"top_logprobs\":[";
  for (int i = 0; i < position.top_size(); ++i) {
    if (i > 0) content_.push_back(',');
    AppendChatToken(position.top(i), &content_);
    content_.push_back('}');
  }
  content_ += "]},";
}

void ChoiceJson::AppendLogprobs(std::string* out) const {
  if (!shape_.logprobs) {
    out->append("null");
    return;
  }
  if (shape_.endpoint == Endpoint::kChatCompletions) {
    out->append("{\"content\":");
    AppendArray(content_, out);
    out->append(",\"refusal\":null}");
    return;
  }
  out->append("{\"tokens\":");
  AppendArray(tokens_, out);
  out->append(",\"token_logprobs\":");
  AppendArray(token_logprobs_, out);
  out->append(",\"top_logprobs\":");
  AppendArray(top_logprobs_, out);
  out->append(",\"text_offset\":");
  AppendArray(text_offset_, out);
  out->push_back('}');
}

void ChoiceJson::AppendTokenIds(std::string* out) const {
  if (!shape_.token_ids) return;
  if (shape_.echo) {
    out->append(",\"prompt_token_ids\":");
    AppendArray(prompt_token_ids_, out);
  }
  out->append(",\"token_ids\":");
  AppendArray(token_ids_, out);
}

void ChoiceJson::AppendTokenDetails(std::string* out) const {
  if (token_details_.empty()) return;
  out->append("\"tokens\":");
  AppendArray(token_details_, out);
}

void AppendPromptPosition(const v1::PositionLogprobs& position, std::string* out) {
  out->append(",{");
  const auto add = [out](const v1::TokenLogprob& token) {
    out->push_back('"');
    AppendInteger(token.id(), out);
    out->append("\":{\"logprob\":");
    AppendLogprob(token.logprob(), out);
    out->append(",\"rank\":");
    AppendInteger(int64_t{token.rank()} + 1, out);
    out->append(",\"decoded_token\":");
    AppendJsonString(token.token(), out);
    out->push_back('}');
  };
  add(position.chosen());
  for (const v1::TokenLogprob& token : position.top()) {
    if (token.id() == position.chosen().id()) continue;
    out->push_back(',');
    add(token);
  }
  out->push_back('}');
}

}  // namespace tandem::text
