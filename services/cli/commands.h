// The subcommands of `tandem`. Each adds itself to the program and says, once parsed, how it ran:
// the exit status (0 done, 1 the server or the input said no, 2 wrong flags, 130 interrupted).
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace tandem::cli {

using Run = std::function<int()>;

// set_run receives what to run if the subcommand was chosen.
void AddGenerate(CLI::App& app, const std::function<void(Run)>& set_run);
void AddChat(CLI::App& app, const std::function<void(Run)>& set_run);
void AddTokenize(CLI::App& app, const std::function<void(Run)>& set_run);
void AddHealth(CLI::App& app, const std::function<void(Run)>& set_run);
void AddExplain(CLI::App& app, const std::function<void(Run)>& set_run);
void AddModels(CLI::App& app, const std::function<void(Run)>& set_run);
void AddFleet(CLI::App& app, const std::function<void(Run)>& set_run);
void AddBench(CLI::App& app, const std::function<void(Run)>& set_run);

}  // namespace tandem::cli
