#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include <unistd.h>

#include "services/cli/commands.h"
#include "services/cli/generation_client.h"
#include "services/cli/terminal.h"

namespace tandem::cli {
namespace {

struct Flags {
  ConnectionFlags connection;
  RequestFlags request;
  std::string prompt;
  std::string system;
  bool chat = false;
  bool echo = false;
  std::optional<int32_t> prompt_logprobs;
  bool verbose = false;
  int32_t n = 1;
};

int RunGenerate(const Flags& flags) {
  v1::GenerateRequest request;
  if (const absl::Status status = flags.request.Fill(request); !status.ok()) {
    Fail(status);
    return 2;
  }
  std::string prompt = flags.prompt;
  if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (flags.chat) {
    v1::Chat& chat = *request.mutable_chat();
    if (!flags.system.empty()) {
      v1::Message& message = *chat.add_messages();
      message.set_role("system");
      message.set_content(flags.system);
    }
    v1::Message& message = *chat.add_messages();
    message.set_role("user");
    message.set_content(prompt);
  } else {
    request.set_prompt(prompt);
  }
  request.mutable_sampling()->set_n(flags.n);
  request.mutable_response()->set_prefill_progress(StderrIsTerminal());
  request.mutable_response()->set_echo(flags.echo);
  if (flags.prompt_logprobs)
    request.mutable_response()->set_prompt_logprobs(*flags.prompt_logprobs);

  auto connection = Connection::Dial(flags.connection);
  if (!connection.ok()) return Fail(connection.status());
  // One choice streams as it comes; several would run into each other, so they are printed whole.
  const bool stream = flags.n == 1;
  const GenerationResult result = Generate(
      **connection, request, flags.request.timeout_seconds,
      [stream](const v1::Delta& delta) {
        if (!stream) return true;
        std::cout << (isatty(STDOUT_FILENO) == 1 ? ForTerminal(delta.text()) : delta.text())
                  << std::flush;
        return !std::cout.fail();  // nobody reads any more
      },
      [](const v1::PromptLogprobs& logprobs) { std::cerr << Lines(logprobs); });
  if (stream) {
    if (!result.choices.empty()) std::cout << "\n";
  } else {
    for (size_t i = 0; i < result.choices.size(); ++i) {
      std::cout << "--- choice " << i << "\n" << result.choices[i].text << "\n";
    }
  }
  std::cout << std::flush;
  if (flags.verbose) std::cerr << Summary(result);
  if (result.interrupted) return 130;
  if (std::cout.fail()) return 1;  // main says so
  if (!result.status.ok()) return Fail(result.status);
  for (const ChoiceResult& choice : result.choices) {
    if (!choice.done || choice.finished.reason() == v1::FINISH_REASON_ERROR) {
      std::cerr << "error: " << (choice.done ? choice.finished.error() : "the stream ended early")
                << "\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace

void AddGenerate(CLI::App& app, const std::function<void(Run)>& set_run) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "generate", "Continue a prompt, or answer it with --chat; streams to stdout");
  flags->connection.AddTo(*command);
  flags->request.AddTo(*command);
  command->add_option("prompt", flags->prompt, "The prompt; '-' reads it from stdin")->required();
  command->add_flag("--chat", flags->chat,
                    "Send the prompt as a user's message through the model's chat template");
  command->add_option("--system", flags->system, "System message, with --chat")->needs("--chat");
  command->add_option("-n,--choices", flags->n, "Choices, 1 to 16")->check(CLI::Range(1, 16));
  command->add_flag("--echo", flags->echo, "Begin with the prompt; not with --chat")
      ->excludes("--chat");
  command->add_option(
      "--prompt-logprobs", flags->prompt_logprobs,
      "Print the prompt's tokens to stderr, with logprobs, ranks and so many of the "
      "most likely at each position, 0 to 20");
  command->add_flag("-v,--verbose", flags->verbose,
                    "Print seed, time to first token, tokens/s, counters");
  command->callback([flags, set_run] { set_run([flags] { return RunGenerate(*flags); }); });
}

}  // namespace tandem::cli
