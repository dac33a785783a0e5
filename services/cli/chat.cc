#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <editline/readline.h>
#include <unistd.h>

#include "services/cli/commands.h"
#include "services/cli/generation_client.h"
#include "services/cli/interrupt.h"
#include "services/cli/terminal.h"

namespace tandem::cli {
namespace {

constexpr char kHelp[] =
    "/reset  forget the conversation     /undo  take back the last question and answer\n"
    "/history  show the conversation     /quit  leave (or Ctrl-D)     Ctrl-C  stop an answer\n";

struct Flags {
  ConnectionFlags connection;
  RequestFlags request;
  std::string system;
  bool verbose = false;
};

// A line from the person: edited on a terminal, plain otherwise. Nothing at the end of input.
std::optional<std::string> ReadLine(bool terminal) {
  if (!terminal) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  const std::unique_ptr<char, decltype(&std::free)> line(readline("> "), &std::free);
  if (line == nullptr) return std::nullopt;
  if (line.get()[0] != '\0') add_history(line.get());
  return std::string(line.get());
}

void PrintHistory(const v1::Chat& chat) {
  for (const v1::Message& message : chat.messages()) {
    std::cout << "[" << message.role() << "] " << ForTerminal(message.content()) << "\n";
  }
}

// Asks with the conversation so far; on success the answer joins it, else the question leaves it.
bool Ask(Connection& connection, const Flags& flags, const std::string& question, bool terminal,
         v1::Chat& chat) {
  v1::Message& message = *chat.add_messages();
  message.set_role("user");
  message.set_content(question);
  v1::GenerateRequest request;
  if (const absl::Status status = flags.request.Fill(request); !status.ok()) {
    std::cerr << "error: " << status.message() << "\n";
    return false;
  }
  *request.mutable_chat() = chat;
  request.mutable_response()->set_prefill_progress(terminal);
  const GenerationResult result = Generate(
      connection, request, flags.request.timeout_seconds, [terminal](const v1::Delta& delta) {
        std::cout << (terminal ? ForTerminal(delta.text()) : delta.text()) << std::flush;
      });
  const std::string answer = result.choices.empty() ? "" : result.choices[0].text;
  std::cout << (result.interrupted ? " [stopped]" : "") << "\n\n" << std::flush;
  if (flags.verbose) std::cerr << Summary(result);
  const bool failed = !result.choices.empty() && result.choices[0].done &&
                      result.choices[0].finished.reason() == v1::FINISH_REASON_ERROR;
  if (!result.interrupted && (!result.status.ok() || failed)) {
    std::cerr << "error: "
              << (failed ? result.choices[0].finished.error()
                         : std::string(result.status.message()))
              << " (the question was taken back)\n";
    chat.mutable_messages()->RemoveLast();
    return false;
  }
  v1::Message& reply = *chat.add_messages();
  reply.set_role("assistant");
  reply.set_content(answer);
  return true;
}

int RunChat(const Flags& flags) {
  const bool terminal = StdinIsTerminal();
  if (terminal) SetRestoreTerminal([] { rl_deprep_terminal(); });
  auto connection = Connection::Dial(flags.connection);
  if (!connection.ok()) {
    std::cerr << "error: " << connection.status().message() << "\n";
    return 1;
  }
  v1::Chat chat;
  const auto start = [&chat, &flags] {
    chat.clear_messages();
    if (flags.system.empty()) return;
    v1::Message& message = *chat.add_messages();
    message.set_role("system");
    message.set_content(flags.system);
  };
  start();
  if (terminal) std::cout << "Type a message; /help shows the commands.\n\n";
  bool ok = true;
  while (const std::optional<std::string> line = ReadLine(terminal)) {
    if (line->empty()) continue;
    if (*line == "/quit") break;
    if (*line == "/help") {
      std::cout << kHelp;
    } else if (*line == "/reset") {
      start();
      std::cout << "(a new conversation)\n";
    } else if (*line == "/history") {
      PrintHistory(chat);
    } else if (*line == "/undo") {
      const int first = flags.system.empty() ? 0 : 1;
      if (chat.messages_size() - first < 2) {
        std::cout << "(nothing to take back)\n";
      } else {
        chat.mutable_messages()->RemoveLast();
        chat.mutable_messages()->RemoveLast();
        std::cout << "(took back the last question and answer)\n";
      }
    } else if (line->front() == '/') {
      std::cout << "unknown command " << ForTerminal(*line) << "\n" << kHelp;
    } else {
      ok = Ask(**connection, flags, *line, terminal, chat) && ok;
    }
  }
  if (terminal) std::cout << "\n";
  return ok ? 0 : 1;
}

}  // namespace

void AddChat(CLI::App& app, const std::function<void(Run)>& set_run) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("chat", "Talk to the model; /help inside shows the commands");
  flags->connection.AddTo(*command);
  flags->request.AddTo(*command);
  command->add_option("--system", flags->system, "System message");
  command->add_flag("-v,--verbose", flags->verbose,
                    "Print seed, time to first token, tokens/s after each answer");
  command->callback([flags, set_run] { set_run([flags] { return RunChat(*flags); }); });
}

}  // namespace tandem::cli
