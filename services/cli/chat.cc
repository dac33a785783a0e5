// `tandem chat`: a conversation with a model.
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "services/cli/commands.h"
#include "services/cli/conversation.h"
#include "services/cli/generation_client.h"
#include "services/cli/interrupt.h"
#include "services/cli/line_reader.h"
#include "services/cli/private_file.h"
#include "services/cli/request_settings.h"
#include "services/cli/table.h"
#include "services/cli/terminal.h"

namespace tandem::cli {
namespace {

constexpr char kHelp[] =
    "/system [TEXT]     show or set the system message; '-' takes it away\n"
    "/reset             forget the conversation, but for the system message\n"
    "/undo              take back the last question and its answer\n"
    "/retry             ask the last question again\n"
    "/history           show the conversation\n"
    "/save FILE         write it to a file (JSON)\n"
    "/load FILE         go on with one that was saved\n"
    "/set [NAME VALUE]  show or change a flag of generate: /set temperature 0.7\n"
    "/unset NAME        as the command line had it\n"
    "/stats             times and tokens of the last answer and of all\n"
    "/quit              leave, as Ctrl-D or Ctrl-C at an empty prompt does\n"
    "Ctrl-C stops an answer. A line that ends with \\ goes on in the next one; what is pasted "
    "stays\n"
    "together. A message that begins with a slash is written with two: //usr\n";

struct Flags {
  ConnectionFlags connection;
  RequestFlags request;
  std::string system;
  bool verbose = false;
  bool no_history = false;
};

class Chat final {
 public:
  Chat(Connection& connection, const Flags& flags)
      : connection_(connection),
        verbose_(flags.verbose),
        escape_(StdoutIsTerminal()),
        settings_(flags.request) {
    conversation_.SetSystem(flags.system);
  }

  // False: the person wants to leave.
  bool Handle(const std::string& text) {
    if (text.empty()) return true;
    if (text[0] != '/') {
      Ask(text);
    } else if (text.rfind("//", 0) == 0) {
      Ask(text.substr(1));
    } else if (text == "/quit") {
      return false;
    } else {
      RunCommand(text);
    }
    return true;
  }

  // Every question was answered, and every command done.
  bool ok() const { return ok_; }

 private:
  void Say(const std::string& text) { std::cout << "(" << text << ")\n" << std::flush; }
  void Complain(const std::string& text) {
    ok_ = false;
    std::cerr << "error: " << ForTerminal(text) << "\n";
  }
  void Check(const absl::Status& status, const std::string& done) {
    if (status.ok()) return Say(done);
    Complain(std::string(status.message()));
  }

  void RunCommand(const std::string& line) {
    const size_t space = line.find_first_of(" \t\n");
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos
                                 ? ""
                                 : std::string(absl::StripAsciiWhitespace(line.substr(space)));
    using Handler = void (Chat::*)(const std::string&);
    struct Command {
      Handler handler;
      bool takes_text;
      bool needs_text;
    };
    static const auto& commands = *new std::map<std::string, Command>{
        {"/help", {&Chat::Help, false, false}},   {"/system", {&Chat::System, true, false}},
        {"/reset", {&Chat::Reset, false, false}}, {"/undo", {&Chat::Undo, false, false}},
        {"/retry", {&Chat::Retry, false, false}}, {"/history", {&Chat::History, false, false}},
        {"/save", {&Chat::Save, true, true}},     {"/load", {&Chat::Load, true, true}},
        {"/set", {&Chat::Set, true, false}},      {"/unset", {&Chat::Unset, true, true}},
        {"/stats", {&Chat::Stats, false, false}},
    };
    const auto found = commands.find(name);
    if (found == commands.end()) {
      return Complain(absl::StrCat("unknown command ", name, "; /help shows what there is"));
    }
    const Command& command = found->second;
    if (command.needs_text && rest.empty()) return Complain(name + " needs an argument");
    if (!command.takes_text && !rest.empty()) return Complain(name + " takes no argument");
    (this->*command.handler)(rest);
  }

  void Help(const std::string&) { std::cout << kHelp << std::flush; }
  void System(const std::string& text) {
    if (!text.empty()) {
      conversation_.SetSystem(text == "-" ? "" : text);
      return Say(text == "-" ? "no system message" : "the system message is set");
    }
    Say(conversation_.system().empty() ? "no system message"
                                       : "system: " + Shown(conversation_.system()));
  }
  void Reset(const std::string&) {
    conversation_.Reset();
    Say("a new conversation");
  }
  void Undo(const std::string&) {
    if (!conversation_.TakeBackQuestion().has_value()) return Complain("there is no question yet");
    Say("took back the last question and its answer");
  }
  void Retry(const std::string&) {
    const std::optional<std::string> question = conversation_.TakeBackQuestion();
    if (!question.has_value()) return Complain("there is no question yet");
    Ask(*question);
  }
  void History(const std::string&) {
    for (const v1::Message& message : conversation_.chat().messages()) {
      std::cout << "[" << Shown(message.role()) << "] " << Shown(message.content()) << "\n";
    }
    std::cout << std::flush;
  }
  void Save(const std::string& path) {
    Check(conversation_.Save(path), absl::StrCat("saved ", Messages(), " to ", path));
  }
  void Load(const std::string& path) {
    const absl::Status status = conversation_.Load(path);
    Check(status, absl::StrCat("loaded ", Messages(), " from ", path));
  }
  void Set(const std::string& text) {
    if (text.empty()) {
      if (settings_.values().empty()) return Say("nothing is set");
      for (const auto& [name, value] : settings_.values()) Say(name + " " + value);
      return;
    }
    const size_t space = text.find(' ');
    if (space == std::string::npos) return Complain("/set needs a name and a value");
    const std::string name = text.substr(0, space);
    const std::string value = std::string(absl::StripAsciiWhitespace(text.substr(space)));
    Check(settings_.Set(name, value), absl::StrCat(name, " is ", value));
  }
  void Unset(const std::string& name) {
    Check(settings_.Unset(name), name + " is as the command line had it");
  }
  void Stats(const std::string&) {
    if (answers_ == 0) return Say("no answer yet");
    std::cout << last_ << "all: " << answers_ << " answers, " << WithCommas(prompt_tokens_)
              << " prompt tokens, " << WithCommas(output_tokens_) << " output tokens\n"
              << std::flush;
  }

  // Asks with the conversation so far. An answer joins it, also one that was stopped; without one
  // the question leaves it again.
  void Ask(const std::string& question) {
    v1::GenerateRequest request;
    if (const absl::Status status = settings_.flags().Fill(request); !status.ok()) {
      return Complain(std::string(status.message()));
    }
    conversation_.AddQuestion(question);
    *request.mutable_chat() = conversation_.chat();
    request.mutable_response()->set_prefill_progress(StderrIsTerminal());
    const GenerationResult result = Generate(
        connection_, request, settings_.flags().timeout_seconds, [this](const v1::Delta& delta) {
          std::cout << Shown(delta.text()) << std::flush;
          return true;
        });
    const ChoiceResult choice = result.choices.empty() ? ChoiceResult() : result.choices[0];
    const bool stopped = result.interrupted;
    std::cout << (stopped ? " [stopped]" : "") << "\n\n" << std::flush;
    Count(result, choice);
    const bool failed = choice.done && choice.finished.reason() == v1::FINISH_REASON_ERROR;
    if (!stopped && (failed || !result.status.ok())) {
      conversation_.TakeBackQuestion();
      return Complain(absl::StrCat(failed ? choice.finished.error() : FailureText(result.status),
                                   " (the question was taken back)"));
    }
    if (stopped && choice.text.empty()) {
      conversation_.TakeBackQuestion();
      return Say("there was no answer yet: the question was taken back");
    }
    conversation_.AddAnswer(choice.text);
  }

  void Count(const GenerationResult& result, const ChoiceResult& choice) {
    last_ = Summary(result);
    if (verbose_) std::cerr << last_;
    if (choice.text.empty()) return;
    ++answers_;
    prompt_tokens_ += result.started.prompt_tokens();
    output_tokens_ += choice.finished.usage().output_tokens();
  }

  std::string Messages() const {
    const int count = conversation_.chat().messages_size();
    return absl::StrCat(count, count == 1 ? " message" : " messages");
  }
  std::string Shown(const std::string& text) const { return escape_ ? ForTerminal(text) : text; }

  Connection& connection_;
  const bool verbose_;
  const bool escape_;  // what the model says goes to a terminal
  RequestSettings settings_;
  Conversation conversation_;
  bool ok_ = true;
  std::string last_;  // Summary of the last answer
  int64_t answers_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t output_tokens_ = 0;  // of answers that were not stopped
};

int RunChat(const Flags& flags) {
  v1::GenerateRequest request;
  if (const absl::Status status = flags.request.Fill(request); !status.ok()) {
    Fail(status);
    return 2;
  }
  const auto connection = Connection::Dial(flags.connection);
  if (!connection.ok()) return Fail(connection.status());
  const bool terminal = StdinIsTerminal();
  LineReader reader(terminal);
  InputHistory history(terminal && !flags.no_history ? InputHistory::DefaultPath() : "");
  if (const absl::Status status = history.Open(); !status.ok()) {
    std::cerr << "no history: " << status.message() << "\n";
  }
  reader.SetHistory(history.lines());
  Chat chat(**connection, flags);
  if (terminal) std::cout << "Type a message; /help shows the commands.\n\n" << std::flush;
  while (true) {
    // Between a prompt and an answer there is nothing that Ctrl-C could stop.
    const InterruptScope nothing([] {});
    const std::optional<LineReader::Input> input = reader.Read();
    if (!input.has_value()) break;
    if (terminal) history.Add(input->history);
    if (!chat.Handle(input->text)) break;
  }
  if (reader.interrupted()) return 130;
  if (terminal) std::cout << "\n";
  return chat.ok() || terminal ? 0 : 1;
}

}  // namespace

void AddChat(CLI::App& app, const std::function<void(Run)>& set_run) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("chat", "Talk to the model; /help inside shows the commands");
  flags->connection.AddTo(*command);
  flags->request.AddTo(*command);
  command->add_option("--system", flags->system, "System message");
  command->add_flag("--no-history", flags->no_history,
                    "Neither read nor keep what is typed; else the last 1,000 lines are in "
                    "$XDG_STATE_HOME/tandem/chat_history, or below ~/.local/state, for this user "
                    "alone");
  command->add_flag("-v,--verbose", flags->verbose,
                    "Print seed, time to first token, tokens/s after each answer");
  command->callback([flags, set_run] { set_run([flags] { return RunChat(*flags); }); });
}

}  // namespace tandem::cli
