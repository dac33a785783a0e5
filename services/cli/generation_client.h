// One call of tandem.v1.Generation.Generate, with what a command line needs around it: sampling
// flags, times, Ctrl-C.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "services/cli/connection.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::cli {

// The flags of generate and chat that become fields of the request; what was not given is not sent.
struct RequestFlags {
  std::string model;
  std::optional<int32_t> max_tokens;
  std::optional<int32_t> min_tokens;
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<int32_t> repetition_window;
  std::optional<int32_t> presence_window;
  std::optional<int32_t> frequency_window;
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;  // "id:value"
  std::vector<std::string> stop_strings;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;
  std::string cache_salt;
  bool no_cache = false;
  std::optional<double> timeout_seconds;

  void AddTo(CLI::App& app);
  // INVALID_ARGUMENT: a logit_bias that is not "id:value".
  absl::Status Fill(v1::GenerateRequest& request) const;
};

struct ChoiceResult {
  std::string text;
  v1::Finished finished;
  bool done = false;
};

struct GenerationResult {
  absl::Status status;  // of the call; OK also where a choice finished with an error
  bool interrupted = false;
  v1::Started started;
  std::vector<ChoiceResult> choices;  // by choice number
  double first_token_seconds = 0.0;   // from sending the request to the first delta
  double total_seconds = 0.0;
};

using DeltaSink = std::function<bool(const v1::Delta&)>;  // false: no more is wanted
using PromptSink = std::function<void(const v1::PromptLogprobs&)>;

// Streams into on_delta and on_prompt (as messages arrive) and returns when the stream has ended. A
// progress bar on stderr, where that is a terminal, shows how far a long prompt has been read.
GenerationResult Generate(Connection& connection, const v1::GenerateRequest& request,
                          std::optional<double> timeout_seconds, const DeltaSink& on_delta,
                          const PromptSink& on_prompt = nullptr);

// For people, a line per position: its number, the token, its logprob and rank, the most likely.
std::string Lines(const v1::PromptLogprobs& logprobs);

// Seed, times, counters: what -v prints, a line per choice.
std::string Summary(const GenerationResult& result);
std::string Name(v1::FinishReason reason);

}  // namespace tandem::cli
