// `tandem models`: what a text tier serves.
#include <unistd.h>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "services/cli/commands.h"
#include "services/cli/connection.h"
#include "services/cli/table.h"
#include "services/cli/terminal.h"

namespace tandem::cli {
namespace {

constexpr std::chrono::seconds kPatience{10};

struct Flags {
  ConnectionFlags connection;
  bool json = false;
};

nlohmann::json ToJson(const v1::Model& model) {
  return {{"name", model.name()},
          {"architecture", model.architecture()},
          {"context_length", model.context_length()},
          {"vocab_size", model.vocab_size()},
          {"weights_fingerprint", model.weights_fingerprint()},
          {"tokenizer_fingerprint", model.tokenizer_fingerprint()},
          {"end_ids", model.end_ids()},
          {"workers", model.workers()},
          {"has_chat_template", model.has_chat_template()}};
}

int RunModels(const Flags& flags) {
  const auto connection = Connection::Dial(flags.connection);
  if (!connection.ok()) return Fail(connection.status());
  grpc::ClientContext context;
  (*connection)->Authorize(&context);
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::ListModelsResponse response;
  const grpc::Status status = (*connection)->generation().ListModels(&context, {}, &response);
  if (!status.ok()) return Fail(FromGrpc(status));
  if (flags.json) {
    nlohmann::json models = nlohmann::json::array();
    for (const v1::Model& model : response.models()) models.push_back(ToJson(model));
    std::cout << models.dump() << "\n";
    return 0;
  }
  if (response.models().empty()) {
    std::cout << "no model: no worker is connected\n";
    return 0;
  }
  using enum Table::Align;
  Table table({{"NAME", kLeft},
               {"ARCHITECTURE", kLeft},
               {"CONTEXT"},
               {"VOCABULARY"},
               {"WORKERS"},
               {"TEMPLATE", kLeft},
               {"WEIGHTS", kLeft},
               {"TOKENIZER", kLeft}});
  for (const v1::Model& model : response.models()) {
    table.AddRow({model.name(), model.architecture(), WithCommas(model.context_length()),
                  WithCommas(model.vocab_size()), WithCommas(model.workers()),
                  model.has_chat_template() ? "yes" : "no",
                  ShortFingerprint(model.weights_fingerprint()),
                  ShortFingerprint(model.tokenizer_fingerprint())});
  }
  std::cout << table.Text(StdoutIsTerminal() ? SizeOfTerminal(STDOUT_FILENO).columns : 0);
  return 0;
}

}  // namespace

void AddModels(CLI::App& app, const std::function<void(Run)>& set_run) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "models", "The models that a text tier serves, with sizes and fingerprints");
  flags->connection.AddTo(*command);
  command->add_flag("--json", flags->json,
                    "Print a JSON array, with the names of tandem.v1.Model's fields");
  command->callback([flags, set_run] { set_run([flags] { return RunModels(*flags); }); });
}

}  // namespace tandem::cli
