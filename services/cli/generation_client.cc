#include "services/cli/generation_client.h"

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "services/cli/interrupt.h"
#include "services/cli/terminal.h"
#include "services/common/flags.h"
#include "services/common/grpc_status.h"
#include "services/common/progress.h"

namespace tandem::cli {
namespace {

constexpr double kMinTimeoutSeconds = 0.001;
constexpr double kMaxTimeoutSeconds = 86400;

}  // namespace

void RequestFlags::AddTo(CLI::App& app) {
  app.add_option("--model", model, "Model name; needed only where several are served");
  app.add_option("--max-tokens", max_tokens,
                 "Most output tokens; default: up to the context length");
  app.add_option("--min-tokens", min_tokens,
                 "Output tokens before an end or stop token may be chosen");
  app.add_option("--temperature", temperature, "0: greedy; 1e-5 to 100; default 1");
  app.add_option("--top-k", top_k, "Keep the k best; 0: off");
  app.add_option("--top-p", top_p,
                 "Keep the smallest best set with this share of the mass; 1: off");
  app.add_option("--min-p", min_p, "Keep what is at least this share of the best; 0: off");
  app.add_option("--repetition-penalty", repetition_penalty,
                 "0.01 to 100, prompt and output; 1: off");
  app.add_option("--presence-penalty", presence_penalty, "-100 to 100, output; 0: off");
  app.add_option("--frequency-penalty", frequency_penalty, "-100 to 100, output; 0: off");
  app.add_option("--repetition-window", repetition_window, "Last tokens that count; 0: all");
  app.add_option("--presence-window", presence_window, "Last tokens that count; 0: all");
  app.add_option("--frequency-window", frequency_window, "Last tokens that count; 0: all");
  app.add_option("--seed", seed, "Default: drawn, and printed by -v")->check(CheckUnsigned);
  app.add_option("--logit-bias", logit_bias,
                 "ID:VALUE, added to that token's logit; may be repeated");
  app.add_option("--stop", stop_strings, "Text that ends the answer; may be repeated");
  app.add_option("--stop-token-id", stop_token_ids, "Token that ends the answer; may be repeated");
  app.add_flag("--ignore-eos", ignore_eos, "The model's end tokens do not end the answer");
  app.add_flag("--include-stop", include_stop, "Keep the stop text in the answer");
  app.add_option("--cache-salt", cache_salt,
                 "Share cached tokens only with requests of the same salt; at most 64 bytes");
  app.add_flag("--no-cache", no_cache, "Neither find cached tokens nor leave any");
  app.add_option("--timeout", timeout_seconds, "Seconds for the whole call; default: none")
      ->check(CLI::Range(kMinTimeoutSeconds, kMaxTimeoutSeconds));
}

absl::Status RequestFlags::Fill(v1::GenerateRequest& request) const {
  request.set_model(model);
  if (max_tokens) request.set_max_tokens(*max_tokens);
  if (min_tokens) request.set_min_tokens(*min_tokens);
  v1::Sampling& sampling = *request.mutable_sampling();
  if (temperature) sampling.set_temperature(*temperature);
  if (top_k) sampling.set_top_k(*top_k);
  if (top_p) sampling.set_top_p(*top_p);
  if (min_p) sampling.set_min_p(*min_p);
  if (repetition_penalty) sampling.set_repetition_penalty(*repetition_penalty);
  if (presence_penalty) sampling.set_presence_penalty(*presence_penalty);
  if (frequency_penalty) sampling.set_frequency_penalty(*frequency_penalty);
  if (repetition_window) sampling.set_repetition_window(*repetition_window);
  if (presence_window) sampling.set_presence_window(*presence_window);
  if (frequency_window) sampling.set_frequency_window(*frequency_window);
  if (seed) sampling.set_seed(*seed);
  for (const std::string& text : logit_bias) {
    const std::vector<std::string> parts = absl::StrSplit(text, ':');
    int32_t id = 0;
    float value = 0.0f;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &id) ||
        !absl::SimpleAtof(parts[1], &value)) {
      return InvalidArgument("--logit-bias is '", text, "': it must be ID:VALUE");
    }
    if (!sampling.mutable_logit_bias()->insert({id, value}).second) {
      return InvalidArgument("--logit-bias names id ", id, " twice");
    }
  }
  v1::Stopping& stopping = *request.mutable_stopping();
  for (const std::string& stop : stop_strings) stopping.add_stop_strings(stop);
  for (const int32_t id : stop_token_ids) stopping.add_stop_token_ids(id);
  stopping.set_ignore_eos(ignore_eos);
  stopping.set_include_stop(include_stop);
  if (!cache_salt.empty()) request.mutable_cache()->set_salt(cache_salt);
  if (no_cache) request.mutable_cache()->set_bypass(true);
  return absl::OkStatus();
}

GenerationResult Generate(Connection& connection, const v1::GenerateRequest& request,
                          std::optional<double> timeout_seconds, const DeltaSink& on_delta,
                          const PromptSink& on_prompt) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  GenerationResult result;
  grpc::ClientContext context;
  connection.Authorize(&context);
  if (timeout_seconds) {
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::microseconds(static_cast<int64_t>(*timeout_seconds * 1e6)));
  }
  const InterruptScope interrupt([&context] { context.TryCancel(); });
  Progress progress("reading the prompt", StderrIsTerminal(), std::cerr,
                    SizeOfTerminal(STDERR_FILENO).columns);
  const Clock::time_point start = Clock::now();
  const auto reader = connection.generation().Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    switch (response.event_case()) {
      case v1::GenerateResponse::kStarted:
        result.started = response.started();
        break;
      case v1::GenerateResponse::kProgress: {
        const v1::Progress& read = response.progress();
        if (read.done_tokens() < 0 || read.done_tokens() > read.total_tokens()) break;
        progress.Update(read.done_tokens(), read.total_tokens());
        break;
      }
      case v1::GenerateResponse::kPromptLogprobs:
        if (on_prompt) on_prompt(response.prompt_logprobs());
        break;
      case v1::GenerateResponse::kDelta: {
        const v1::Delta& delta = response.delta();
        if (!delta.echo() && result.first_token_seconds == 0.0)
          result.first_token_seconds = seconds_since(start);
        if (delta.choice() < 0 || delta.choice() > 1024) break;
        if (result.choices.size() <= static_cast<size_t>(delta.choice()))
          result.choices.resize(delta.choice() + 1);
        result.choices[delta.choice()].text += delta.text();
        if (!on_delta(delta)) context.TryCancel();
        break;
      }
      case v1::GenerateResponse::kFinished: {
        const v1::Finished& finished = response.finished();
        if (finished.choice() < 0 || finished.choice() > 1024) break;
        if (result.choices.size() <= static_cast<size_t>(finished.choice())) {
          result.choices.resize(finished.choice() + 1);
        }
        result.choices[finished.choice()].finished = finished;
        result.choices[finished.choice()].done = true;
        break;
      }
      case v1::GenerateResponse::EVENT_NOT_SET:
        break;
    }
  }
  result.status = FromGrpc(reader->Finish());
  result.interrupted = interrupt.interrupted();
  result.total_seconds = seconds_since(start);
  return result;
}

std::string Lines(const v1::PromptLogprobs& logprobs) {
  const auto add = [](const v1::TokenLogprob& token, std::string* text) {
    absl::StrAppendFormat(text, "%d '%s' %.4f", token.id(), absl::CHexEscape(token.token()),
                          token.logprob());
  };
  std::string text;
  for (int i = 0; i < logprobs.positions_size(); ++i) {
    const v1::PositionLogprobs& position = logprobs.positions(i);
    absl::StrAppendFormat(&text, "%d: ", logprobs.first_position() + i);
    add(position.chosen(), &text);
    absl::StrAppendFormat(&text, " rank %d", position.chosen().rank());
    for (int k = 0; k < position.top_size(); ++k) {
      text += k == 0 ? "; most likely " : ", ";
      add(position.top(k), &text);
    }
    text += "\n";
  }
  return text;
}

std::string Name(v1::FinishReason reason) {
  std::string name = v1::FinishReason_Name(reason);
  constexpr absl::string_view kPrefix = "FINISH_REASON_";
  return name.rfind(kPrefix.data(), 0) == 0 ? name.substr(kPrefix.size()) : name;
}

std::string Summary(const GenerationResult& result) {
  int32_t cached = result.started.cached_tokens();
  for (const ChoiceResult& choice : result.choices) {
    cached = std::max(cached, choice.finished.usage().cached_tokens());
  }
  std::string text = absl::StrFormat(
      "seed %d, %d prompt tokens (%d cached), first token after %.0f ms\n", result.started.seed(),
      result.started.prompt_tokens(), cached, result.first_token_seconds * 1e3);
  for (const ChoiceResult& choice : result.choices) {
    if (!choice.done) continue;
    const v1::Finished& finished = choice.finished;
    const google::protobuf::Duration& decode = finished.timings().decode();
    const double seconds = static_cast<double>(decode.seconds()) + 1e-9 * decode.nanos();
    const int32_t tokens = finished.usage().output_tokens();
    const std::string rate = tokens > 1 && seconds > 0.0
                                 ? absl::StrFormat("%.1f tokens/s", (tokens - 1) / seconds)
                                 : "one token";
    absl::StrAppendFormat(&text, "choice %d: %s, %d tokens, %s, %d decided from lists, %d fetched",
                          finished.choice(), Name(finished.reason()), tokens, rate,
                          finished.counters().from_lists(), finished.counters().fetched());
    if (finished.counters().reopened() > 0) {
      absl::StrAppendFormat(&text, ", opened again %d times (%d approximate)",
                            finished.counters().reopened(), finished.counters().approximate());
    }
    text += "\n";
  }
  return text;
}

}  // namespace tandem::cli
