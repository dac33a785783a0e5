#include "services/common/flags.h"

#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/flag_table.h"
#include "services/common/logging.h"
#include "services/common/version.h"

namespace tandem {
namespace {

int Complain(const CLI::App& app, const std::string& message) {
  std::cerr << app.get_name() << ": " << EscapeControl(message) << " (see --help)" << std::endl;
  return kExitUsage;
}

void AddTableFlag(CLI::App& app) {
  AddPrintFlag(app, "--help-markdown", [&app] { return FlagTable(app); });
}

}  // namespace

void AddTlsFlags(CLI::App& app, TlsFiles* tls) {
  app.add_option("--tls-cert", tls->certificate, "PEM file of our certificate chain");
  app.add_option("--tls-key", tls->key, "PEM file of its private key");
  app.add_option("--tls-ca", tls->authority,
                 "PEM file of the authority that must have signed the peer's certificate");
}

void AddLogFlags(CLI::App& app, LogOptions* log, int* status_seconds) {
  const std::map<std::string, LogFormat> formats = {{"text", LogFormat::kText},
                                                    {"json", LogFormat::kJson}};
  const std::map<std::string, LogLevel> levels = {
      {"info", LogLevel::kInfo}, {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}};
  app.add_option_function<std::string>(
         "--log-format",
         [log, formats](const std::string& name) { log->format = formats.at(name); },
         "text, or json: an object a line")
      ->check(CLI::IsMember(formats))
      ->default_str("text");
  app.add_option_function<std::string>(
         "--log-level", [log, levels](const std::string& name) { log->level = levels.at(name); },
         "info, warning or error: lines below it are not written")
      ->check(CLI::IsMember(levels))
      ->default_str("info");
  app.add_option("--status-seconds", *status_seconds,
                 "While something runs, a line of the log every so many seconds says how it goes; "
                 "0: none")
      ->check(CLI::Range(0, kMaxStatusSeconds))
      ->capture_default_str();
}

void AddPrintFlag(CLI::App& app, const std::string& name, std::function<std::string()> text) {
  app.add_flag_function(name,
                        [text = std::move(text)](int64_t) {
                          std::cout << text();
                          throw CLI::Success();
                        })
      ->group("")
      ->trigger_on_parse();
}

std::string CheckUnsigned(const std::string& text) {
  if (text.find('-') == std::string::npos) return "";
  return absl::StrCat("it must be 0 to ", UINT64_MAX, ", not ", text);
}

std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv) {
  if (app.get_option_no_throw("--version") == nullptr) {
    app.set_version_flag("--version", std::string(Version()));
  }
  AddTableFlag(app);
  for (CLI::App* command : app.get_subcommands({})) AddTableFlag(*command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    app.exit(success);
    return 0;
  } catch (const CLI::ParseError& error) {
    return Complain(app, error.what());
  }
  return std::nullopt;
}

int UsageError(const CLI::App& app, const absl::Status& status) {
  return Complain(app, std::string(status.message().data(), status.message().size()));
}

}  // namespace tandem
