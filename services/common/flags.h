// Command lines: flags that several programs have, and one way to answer a bad one.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/common/logging.h"
#include "services/common/transport.h"

namespace tandem {

inline constexpr int kExitUsage = 2;

// --tls-cert, --tls-key, --tls-ca;
void AddTlsFlags(CLI::App& app, TlsFiles* tls);

// --log-format, --log-level, --status-seconds, which a server has.
inline constexpr int kDefaultStatusSeconds = 10;
inline constexpr int kMaxStatusSeconds = 86400;
void AddLogFlags(CLI::App& app, LogOptions* log, int* status_seconds);

// A flag for documents, which --help does not show: prints `text` and leaves.
void AddPrintFlag(CLI::App& app, const std::string& name, std::function<std::string()> text);
// For a check of an unsigned option, of which CLI11 would take -1 as the largest number. Empty: it
// is one; else what is wrong.
std::string CheckUnsigned(const std::string& text);

// Parses. Null: go on. Else the exit code to leave with: 0 after --help or --version (on stdout),
// kExitUsage after one line on stderr that names the flag, the value and the limit.
std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv);

// The same line for what only showed after parsing. Returns kExitUsage.
int UsageError(const CLI::App& app, const absl::Status& status);

}  // namespace tandem
