// `tandem`: the command line. See commands.h for the exit statuses.
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "services/cli/commands.h"
#include "services/cli/connection.h"
#include "services/cli/interrupt.h"
#include "services/common/flags.h"
#include "services/common/signals.h"

int main(int argc, char** argv) {
  const tandem::SignalWatcher signals([](int signal, int) { tandem::cli::HandleSignal(signal); });
  CLI::App app("Talks to a Tandem text tier.", "tandem");
  app.require_subcommand(0, 1);
  tandem::cli::Run run;
  const auto set_run = [&run](tandem::cli::Run chosen) { run = std::move(chosen); };
  tandem::cli::AddGenerate(app, set_run);
  tandem::cli::AddChat(app, set_run);
  tandem::cli::AddTokenize(app, set_run);
  tandem::cli::AddHealth(app, set_run);
  tandem::cli::AddExplain(app, set_run);
  tandem::cli::AddModels(app, set_run);
  tandem::cli::AddFleet(app, set_run);
  tandem::cli::AddBench(app, set_run);
  if (const std::optional<int> status = tandem::ParseFlags(app, argc, argv)) return *status;
  if (run == nullptr) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
    return tandem::UsageError(
        app, tandem::InvalidArgument("a command is needed: ", absl::StrJoin(names, ", ")));
  }
  const int status = run();
  if (std::cout.flush()) return status;
  // What could not be written is not done.
  tandem::cli::Fail(absl::UnavailableError("stdout cannot be written"));
  return status == 0 ? 1 : status;
}
