// A program's flags as a Markdown table, so that documents show what the code has.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tandem {

// A row a flag, in the order in which they were added: name, value, default, what it is. Flags of
// hidden groups and subcommands have none.
std::string FlagTable(const CLI::App& app);

}  // namespace tandem
