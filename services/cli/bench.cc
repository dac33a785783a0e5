// `tandem bench`: load on a text tier, or on any server with OpenAI's completions.
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "services/cli/bench_report.h"
#include "services/cli/commands.h"
#include "services/cli/generation_client.h"
#include "services/cli/grpc_target.h"
#include "services/cli/http_target.h"
#include "services/cli/interrupt.h"
#include "services/cli/live_view.h"
#include "services/cli/terminal.h"
#include "services/common/version.h"

namespace tandem::cli {
namespace {

constexpr int64_t kDefaultRequests = 32;
constexpr double kMaxSeconds = 86400;
constexpr double kModelsPatience = 10;  // seconds
constexpr uint64_t kDefaultSeed = 1;
constexpr int32_t kDefaultMaxTokens = 128;
constexpr int32_t kDefaultPromptTokens = 128;

struct Flags {
  ConnectionFlags connection;
  RequestFlags request;
  std::string http;
  std::vector<int32_t> concurrency = {1};
  std::optional<double> rate;
  std::optional<int64_t> requests;
  std::optional<double> duration;
  int64_t warmup = 0;
  std::optional<int32_t> prompt_tokens;
  std::string prompt_file;
  int32_t shared_prefix = 0;
  std::optional<int32_t> vocab_size;
  int32_t connections = 4;
  std::string json;
};

// The server under load, and what it says of its model.
struct Target {
  std::unique_ptr<HttpClient> http;
  std::unique_ptr<PromptSource> prompts;
  std::unique_ptr<LoadTarget> target;
  nlohmann::json model;
};

absl::StatusOr<v1::Model> FindModel(const Flags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection,
                   Connection::Dial(flags.connection));
  grpc::ClientContext context;
  connection->Authorize(&context);
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(static_cast<int>(kModelsPatience)));
  v1::GetModelRequest request;
  request.set_model(flags.request.model);
  v1::GetModelResponse response;
  RETURN_IF_ERROR(FromGrpc(connection->generation().GetModel(&context, request, &response)));
  return response.model();
}

absl::StatusOr<PromptSource> MakePrompts(const Flags& flags, int32_t vocab_size,
                                         std::vector<int32_t> end_ids) {
  if (!flags.prompt_file.empty()) return PromptSource::FromFile(flags.prompt_file);
  return PromptSource::Random({.tokens = flags.prompt_tokens.value_or(kDefaultPromptTokens),
                               .shared_prefix = flags.shared_prefix,
                               .vocab_size = flags.vocab_size.value_or(vocab_size),
                               .avoid = std::move(end_ids)},
                              flags.request.seed.value_or(kDefaultSeed));
}

absl::StatusOr<Target> MakeGrpcTarget(const Flags& flags, const v1::GenerateRequest& request,
                                      LoadMeter* meter) {
  Target out;
  ASSIGN_OR_RETURN(const v1::Model model, FindModel(flags));
  ASSIGN_OR_RETURN(
      PromptSource prompts,
      MakePrompts(flags, model.vocab_size(), {model.end_ids().begin(), model.end_ids().end()}));
  out.prompts = std::make_unique<PromptSource>(std::move(prompts));
  out.model = {{"name", model.name()},
               {"architecture", model.architecture()},
               {"context_length", model.context_length()},
               {"vocab_size", model.vocab_size()},
               {"weights_fingerprint", model.weights_fingerprint()},
               {"tokenizer_fingerprint", model.tokenizer_fingerprint()},
               {"workers", model.workers()}};
  GrpcTargetOptions options{.request = request,
                            .connections = flags.connections,
                            .timeout_seconds = flags.request.timeout_seconds.value_or(0)};
  options.request.mutable_response()->set_token_ids(true);  // so that tokens are counted
  ASSIGN_OR_RETURN(
      out.target, GrpcTarget::Dial(flags.connection, std::move(options), out.prompts.get(), meter));
  return out;
}

// What a Tandem server adds to OpenAI's description of a model; nulls where another server answers.
nlohmann::json TandemDetails(const nlohmann::json& model) {
  nlohmann::json out = {
      {"vocab_size", nullptr}, {"end_ids", nullptr}, {"weights_fingerprint", nullptr}};
  const auto found = model.find("tandem");
  if (found != model.end() && found->is_object()) out.update(*found);
  return out;
}

absl::StatusOr<Target> MakeHttpTarget(const Flags& flags, v1::GenerateRequest request,
                                      LoadMeter* meter) {
  Target out;
  ASSIGN_OR_RETURN(const HttpUrl url, ParseHttpUrl(flags.http));
  ASSIGN_OR_RETURN(std::string api_key, flags.connection.ApiKey());
  HttpClientOptions options{.url = url,
                            .authority_file = flags.connection.tls.authority,
                            .api_key = std::move(api_key),
                            .timeout_seconds = kModelsPatience};
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpClient> asker, HttpClient::Make(options));
  ASSIGN_OR_RETURN(out.model, FindHttpModel(*asker, flags.request.model));
  request.set_model(out.model["id"].get<std::string>());
  const nlohmann::json details = TandemDetails(out.model);
  int32_t vocab_size = 0;
  if (details["vocab_size"].is_number_unsigned() && details["vocab_size"] <= INT32_MAX) {
    vocab_size = details["vocab_size"].get<int32_t>();
  }
  if (vocab_size == 0 && !flags.vocab_size.has_value() && flags.prompt_file.empty()) {
    return InvalidArgument(
        "--vocab-size is not given, and the server does not say how many ids there are: prompts of "
        "random ids need it");
  }
  std::vector<int32_t> end_ids;
  for (const nlohmann::json& id : details["end_ids"]) {
    if (id.is_number_integer()) end_ids.push_back(id.get<int32_t>());
  }
  ASSIGN_OR_RETURN(PromptSource prompts, MakePrompts(flags, vocab_size, std::move(end_ids)));
  out.prompts = std::make_unique<PromptSource>(std::move(prompts));
  ASSIGN_OR_RETURN(nlohmann::json body, CompletionBody(request));
  options.timeout_seconds = flags.request.timeout_seconds.value_or(0);
  ASSIGN_OR_RETURN(out.http, HttpClient::Make(std::move(options)));
  out.target =
      std::make_unique<HttpTarget>(out.http.get(), std::move(body), out.prompts.get(), meter);
  return out;
}

// As protobuf's JSON has it, with the fields' own names.
nlohmann::json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return nullptr;
  return nlohmann::json::parse(text, nullptr, false);
}

// What all runs have in common.
nlohmann::json Parameters(const Flags& flags, const v1::GenerateRequest& request) {
  const auto or_null = [](const auto& value) {
    return value.has_value() ? nlohmann::json(*value) : nlohmann::json();
  };
  nlohmann::json out = {{"prompt_file", flags.prompt_file},
                        {"warmup", flags.warmup},
                        {"duration_seconds", or_null(flags.duration)},
                        {"requests", or_null(flags.requests)},
                        {"connections", flags.connections},
                        {"max_tokens", request.max_tokens()},
                        {"ignore_eos", request.stopping().ignore_eos()},
                        {"seed", request.sampling().seed()},
                        {"timeout_seconds", or_null(flags.request.timeout_seconds)}};
  if (flags.prompt_file.empty()) {
    out["prompt_tokens"] = flags.prompt_tokens.value_or(kDefaultPromptTokens);
    out["shared_prefix"] = flags.shared_prefix;
  }
  out["sampling"] = ToJson(request.sampling());
  out["stopping"] = ToJson(request.stopping());
  return out;
}

// What was asked of what, in two lines.
std::string Heading(const Flags& flags, const v1::GenerateRequest& request,
                    const nlohmann::json& model) {
  const bool grpc = flags.http.empty();
  const nlohmann::json& details = grpc ? model : TandemDetails(model);
  std::string out = absl::StrCat(ForTerminal(model[grpc ? "name" : "id"].get<std::string>()),
                                 " at ", grpc ? flags.connection.server : flags.http);
  if (const nlohmann::json& weights = details["weights_fingerprint"]; weights.is_string()) {
    absl::StrAppend(&out, ", weights ", ForTerminal(ShortFingerprint(weights.get<std::string>())));
  }
  absl::StrAppend(&out, "\n");
  if (flags.prompt_file.empty()) {
    absl::StrAppend(&out, "prompts of ", flags.prompt_tokens.value_or(kDefaultPromptTokens),
                    " random tokens, ", flags.shared_prefix, " of them the same in all");
  } else {
    absl::StrAppend(&out, "prompts of ", flags.prompt_file);
  }
  absl::StrAppend(&out, "\nat most ", request.max_tokens(), " output tokens, end tokens ",
                  request.stopping().ignore_eos() ? "do not end them" : "end them sooner", "\n\n");
  return out;
}

// Runs one load after the other. *stop: Ctrl-C.
std::vector<BenchRun> RunAll(const Flags& flags, Target& target, LoadMeter& meter,
                             const std::atomic<bool>& stop) {
  std::optional<LiveView> view;
  if (StderrIsTerminal()) view.emplace(STDERR_FILENO);
  std::vector<BenchRun> runs;
  const size_t count = flags.rate.has_value() ? 1 : flags.concurrency.size();
  for (size_t i = 0; i < count && !stop; ++i) {
    BenchRun run;
    LoadOptions options{
        .rate = flags.rate,
        .requests = flags.requests.value_or(flags.duration.has_value() ? 0 : kDefaultRequests),
        .duration_seconds = flags.duration.value_or(0),
        .warmup = flags.warmup,
        .seed = flags.request.seed.value_or(kDefaultSeed)};
    if (flags.rate.has_value()) {
      run.name = absl::StrFormat("%g/s", *flags.rate);
      run.parameters = {{"rate", *flags.rate}};
    } else {
      options.concurrency = flags.concurrency[i];
      run.name = absl::StrCat(options.concurrency, " at once");
      run.parameters = {{"concurrency", options.concurrency}};
    }
    const Nanos start = SteadyNow();
    Nanos before = start;
    int64_t tokens_before = meter.output_tokens;
    double rate = 0.0;
    const auto tick = [&] {
      if (!view.has_value()) return;
      const Nanos now = SteadyNow();
      if (now - before > kNanosPerSecond) {
        const int64_t tokens = meter.output_tokens;
        rate = static_cast<double>(tokens - tokens_before) * kNanosPerSecond /
               static_cast<double>(now - before);
        before = now;
        tokens_before = tokens;
      }
      view->Draw(
          BenchProgress(run.name, static_cast<double>(now - start) / kNanosPerSecond, meter, rate));
    };
    run.report = LoadGenerator(target.target.get(), &meter).Run(options, stop, tick);
    runs.push_back(std::move(run));
  }
  if (view.has_value()) view->Clear();
  return runs;
}

absl::Status WriteJson(const std::string& path, const nlohmann::json& json) {
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  if (path == "-") {
    std::cout << text << "\n" << std::flush;
    return absl::OkStatus();  // main looks whether stdout took it
  }
  std::ofstream file(path);
  file << text << "\n";
  file.close();
  return file ? absl::OkStatus() : InvalidArgument("--json ", path, ": it cannot be written");
}

int RunBench(const Flags& flags) {
  LoadMeter meter;
  v1::GenerateRequest request;
  absl::Status status = flags.request.Fill(request);
  request.mutable_sampling()->set_seed(flags.request.seed.value_or(kDefaultSeed));
  if (!request.has_max_tokens()) request.set_max_tokens(kDefaultMaxTokens);
  absl::StatusOr<Target> target;
  if (status.ok()) {
    target = flags.http.empty() ? MakeGrpcTarget(flags, request, &meter)
                                : MakeHttpTarget(flags, request, &meter);
    status = target.status();
  }
  if (!status.ok()) {
    Fail(status);
    return absl::IsInvalidArgument(status) ? 2 : 1;
  }
  std::atomic<bool> stop{false};
  const InterruptScope interrupt([&stop] { stop = true; });
  const std::string began = IsoTime(std::time(nullptr));
  const std::vector<BenchRun> runs = RunAll(flags, *target, meter, stop);
  // Where JSON goes to stdout, it is alone there.
  (flags.json == "-" ? std::cerr : std::cout)
      << Heading(flags, request, target->model) << BenchText(runs) << std::flush;
  int64_t ok = 0;
  int64_t failed = 0;
  nlohmann::json all = nlohmann::json::array();
  for (const BenchRun& run : runs) {
    ok += run.report.ok;
    failed += run.report.failed;
    all.push_back(BenchJson(run));
  }
  if (!flags.json.empty()) {
    const nlohmann::json json = {
        {"program", "tandem bench"},
        {"version", std::string(Version())},
        {"date", began},
        {"protocol", flags.http.empty() ? "grpc" : "http"},
        {"server", flags.http.empty() ? flags.connection.server : flags.http},
        {"model", target->model},
        {"parameters", Parameters(flags, request)},
        {"interrupted", stop.load()},
        {"runs", std::move(all)}};
    if (const absl::Status written = WriteJson(flags.json, json); !written.ok()) {
      return Fail(written);
    }
  }
  if (stop) return 130;
  return failed == 0 && ok > 0 ? 0 : 1;
}

}  // namespace

void AddBench(CLI::App& app, const std::function<void(Run)>& set_run) {
  const auto flags = std::make_shared<Flags>();
  flags->request.ignore_eos = true;
  CLI::App* command = app.add_subcommand(
      "bench",
      "Put load on a text tier, or with --http on a server with OpenAI's completions, and report "
      "rates and latencies; exit status 1 if a request failed");
  flags->connection.AddTo(*command);
  command->add_option("--http", flags->http,
                      "http:// or https:// URL of the server: POST /v1/completions, instead of "
                      "--server; of the TLS flags only --tls-ca counts");
  CLI::Option* concurrency =
      command
          ->add_option("--concurrency", flags->concurrency,
                       "Closed loop: so many requests at once; several numbers are runs one after "
                       "the other, 1,8,64")
          ->delimiter(',')
          ->capture_default_str()
          ->check(CLI::Range(1, kMaxInFlight));
  command
      ->add_option("--rate", flags->rate,
                   "Open loop: requests a second, at random times (Poisson) that --seed fixes; "
                   "latencies count from when a request should have started")
      ->check(CLI::Range(1e-3, 1e6))
      ->excludes(concurrency);
  command
      ->add_option("--requests", flags->requests,
                   "Requests of a run; default 32, or no limit with --duration")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command
      ->add_option("--duration", flags->duration,
                   "Seconds; no request starts later, what runs is waited for")
      ->check(CLI::Range(0.1, kMaxSeconds));
  command
      ->add_option("--warmup", flags->warmup,
                   "Requests that go first, in a closed loop, and are not counted")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  CLI::Option* prompt_tokens =
      command
          ->add_option("--prompt-tokens", flags->prompt_tokens,
                       "Tokens of a prompt, ids drawn by --seed, without end tokens; default 128")
          ->check(CLI::Range(1, 1 << 28));
  CLI::Option* prefix =
      command
          ->add_option("--shared-prefix", flags->shared_prefix,
                       "So many of these come first and are the same in all prompts")
          ->check(CLI::Range(0, 1 << 28));
  command
      ->add_option("--prompt-file", flags->prompt_file,
                   "Prompts instead, one a line: text, or JSON with \"prompt\" or \"text\"")
      ->excludes(prompt_tokens)
      ->excludes(prefix);
  command
      ->add_option("--vocab-size", flags->vocab_size,
                   "Ids of prompts are below; default: as the server says")
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--connections", flags->connections, "Connections of gRPC that requests share")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command->add_option("--json", flags->json,
                      "Write parameters and results to this file; '-': to stdout, the tables to "
                      "stderr");
  flags->request.AddTo(*command);
  command->get_option("--max-tokens")
      ->description("Output tokens of a request, at most; default 128");
  command->get_option("--ignore-eos")
      ->description("On, so that every request has --max-tokens; --ignore-eos=false: off");
  command->get_option("--seed")->description(
      "Of prompts, arrivals and sampling, the same in all requests; default 1");
  command->get_option("--timeout")->description("Seconds for a request; default: none");
  const CLI::Option* server = command->get_option("--server");
  command->callback([flags, server, set_run] {
    // A variable may name a server for other commands; a flag would be meant for this one.
    const char* variable = std::getenv("TANDEM_SERVER");
    const bool flag =
        server->count() > 0 && (variable == nullptr || server->results()[0] != variable);
    if (flag && !flags->http.empty()) throw CLI::ExcludesError("--http", "--server");
    set_run([flags] { return RunBench(*flags); });
  });
}

}  // namespace tandem::cli
