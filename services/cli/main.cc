// `tandem`: the command line. See commands.h for the exit statuses.
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "services/cli/commands.h"
#include "services/cli/interrupt.h"
#include "services/common/flags.h"
#include "services/common/signals.h"

int main(int argc, char** argv) {
  const tandem::SignalWatcher signals([](int signal, int) { tandem::cli::HandleSignal(signal); });
  CLI::App app("Talks to a Tandem text tier.", "tandem");
  app.require_subcommand(1);
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
  return run();
}
