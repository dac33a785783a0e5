#include "services/cli/http_target.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "services/cli/sse_reader.h"

namespace tandem::cli {
namespace {

constexpr size_t kMaxPlainBody = size_t{1} << 20;  // of what is no stream
constexpr size_t kMaxErrorText = 200;

std::string Dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A number that is there, or 0.
int64_t Number(const nlohmann::json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// What an error body says, in one line.
std::string ErrorText(const std::string& body) {
  std::string text = body;
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error")) {
    const nlohmann::json& error = json["error"];
    const auto message = error.is_object() ? error.find("message") : error.end();
    if (error.is_object() && message != error.end() && message->is_string()) {
      text = message->get<std::string>();
    } else {
      text = Dump(error);
    }
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, kMaxErrorText);
}

// One completion as it comes in. Used from the client's thread.
class Completion final {
 public:
  Completion(LoadMeter* meter, std::function<void(LoadResult)> done)
      : meter_(meter), done_(std::move(done)) {}

  void OnBody(int status, std::string_view bytes) {
    if (status != 200) {
      body_ += bytes.substr(0, kMaxPlainBody - std::min(kMaxPlainBody, body_.size()));
      return;
    }
    if (!broken_.ok()) return;
    broken_ = reader_.Feed(bytes, [this](const std::string& data) { OnEvent(data); });
  }

  void OnEnd(const absl::StatusOr<int>& status) {
    result_.done = SteadyNow();
    if (!status.ok()) {
      result_.cancelled = absl::IsCancelled(status.status());
      result_.error = absl::StrCat(absl::StatusCodeToString(status.status().code()), ": ",
                                   status.status().message());
    } else if (*status != 200) {
      result_.error = absl::StrCat("HTTP ", *status, ": ", ErrorText(body_));
    } else if (!broken_.ok()) {
      result_.error = std::string(broken_.message());
    } else if (!done_seen_ && result_.error.empty()) {
      result_.error = "the stream ended before [DONE]";
    }
    if (usage_tokens_ > 0) {
      meter_->output_tokens += usage_tokens_ - result_.output_tokens;
      result_.output_tokens = usage_tokens_;
    }
    done_(std::move(result_));
  }

 private:
  void OnEvent(const std::string& data) {
    if (data == "[DONE]") {
      done_seen_ = true;
      return;
    }
    const nlohmann::json json = nlohmann::json::parse(data, nullptr, false);
    if (!json.is_object()) {
      if (result_.error.empty()) result_.error = "an event is no JSON object";
      return;
    }
    if (json.contains("error") && !json["error"].is_null()) {
      result_.error = absl::StrCat("error event: ", ErrorText(data));
      return;
    }
    if (const auto usage = json.find("usage"); usage != json.end() && usage->is_object()) {
      usage_tokens_ = Number(*usage, "completion_tokens");
      result_.prompt_tokens = Number(*usage, "prompt_tokens");
      const auto details = usage->find("prompt_tokens_details");
      if (details != usage->end() && details->is_object()) {
        result_.cached_tokens = Number(*details, "cached_tokens");
      }
    }
    const auto choices = json.find("choices");
    if (choices == json.end() || !choices->is_array()) return;
    for (const nlohmann::json& choice : *choices) {
      if (!choice.is_object()) continue;
      const auto text = choice.find("text");
      if (text != choice.end() && text->is_string() && !text->get_ref<const std::string&>().empty())
        Note();
    }
  }

  void Note() {
    const Nanos now = SteadyNow();
    if (result_.first == 0) {
      result_.first = now;
    } else {
      result_.gaps.push_back(now - result_.last);
    }
    result_.last = now;
    ++result_.output_tokens;
    ++meter_->output_tokens;
  }

  LoadMeter* const meter_;
  const std::function<void(LoadResult)> done_;
  SseReader reader_;
  absl::Status broken_;
  std::string body_;  // of an error
  int64_t usage_tokens_ = 0;
  bool done_seen_ = false;
  LoadResult result_;
};

}  // namespace

absl::StatusOr<nlohmann::json> FindHttpModel(HttpClient& client, const std::string& name) {
  std::string body;
  std::promise<absl::StatusOr<int>> ended;
  client.Start(
      {.path = "/v1/models"},
      [&body](int, std::string_view bytes) {
        body += bytes.substr(0, kMaxPlainBody - std::min(kMaxPlainBody, body.size()));
      },
      [&ended](const absl::StatusOr<int>& status) { ended.set_value(status); });
  ASSIGN_OR_RETURN(const int status, ended.get_future().get());
  if (status != 200) {
    const std::string text = absl::StrCat("GET /v1/models: HTTP ", status, ": ", ErrorText(body));
    return status == 401 ? absl::UnauthenticatedError(text) : absl::UnavailableError(text);
  }
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object() || !json.contains("data") || !json["data"].is_array()) {
    return absl::UnavailableError("GET /v1/models: the answer is no list of models");
  }
  for (const nlohmann::json& model : json["data"]) {
    if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) continue;
    if (name.empty() || model["id"] == name) return model;
  }
  return NotFound("GET /v1/models: ", name.empty() ? "it names no model" : "no model " + name);
}

absl::StatusOr<nlohmann::json> CompletionBody(const v1::GenerateRequest& request) {
  nlohmann::json body = {
      {"model", request.model()}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  const v1::Sampling& sampling = request.sampling();
  const v1::Stopping& stopping = request.stopping();
  if (request.has_max_tokens()) body["max_tokens"] = request.max_tokens();
  if (request.min_tokens() != 0) body["min_tokens"] = request.min_tokens();
  if (sampling.has_temperature()) body["temperature"] = sampling.temperature();
  if (sampling.has_top_p()) body["top_p"] = sampling.top_p();
  if (sampling.top_k() != 0) body["top_k"] = sampling.top_k();
  if (sampling.min_p() != 0) body["min_p"] = sampling.min_p();
  if (sampling.has_repetition_penalty()) body["repetition_penalty"] = sampling.repetition_penalty();
  if (sampling.presence_penalty() != 0) body["presence_penalty"] = sampling.presence_penalty();
  if (sampling.frequency_penalty() != 0) body["frequency_penalty"] = sampling.frequency_penalty();
  if (sampling.has_seed()) body["seed"] = sampling.seed();
  for (const auto& [id, bias] : sampling.logit_bias())
    body["logit_bias"][std::to_string(id)] = bias;
  if (!stopping.stop_strings().empty()) body["stop"] = stopping.stop_strings();
  if (!stopping.stop_token_ids().empty()) body["stop_token_ids"] = stopping.stop_token_ids();
  if (stopping.ignore_eos()) body["ignore_eos"] = true;
  const auto refuse = [](const char* flag) {
    return InvalidArgument(flag, " has no name in OpenAI's API: it cannot be used with --http");
  };
  if (sampling.repetition_window() != 0) return refuse("--repetition-window");
  if (sampling.presence_window() != 0) return refuse("--presence-window");
  if (sampling.frequency_window() != 0) return refuse("--frequency-window");
  if (stopping.include_stop()) return refuse("--include-stop");
  if (!request.cache().salt().empty()) return refuse("--cache-salt");
  if (request.cache().bypass()) return refuse("--no-cache");
  return body;
}

void HttpTarget::Send(int64_t number, std::function<void(LoadResult)> done) {
  BenchPrompt prompt = prompts_->Get(number);
  nlohmann::json body = body_;
  if (prompt.ids.empty()) {
    body["prompt"] = std::move(prompt.text);
  } else {
    body["prompt"] = std::move(prompt.ids);
  }
  const auto completion = std::make_shared<Completion>(meter_, std::move(done));
  client_->Start(
      {.path = "/v1/completions", .body = Dump(body)},
      [completion](int status, std::string_view bytes) { completion->OnBody(status, bytes); },
      [completion](const absl::StatusOr<int>& status) { completion->OnEnd(status); });
}

}  // namespace tandem::cli
