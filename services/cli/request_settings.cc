#include "services/cli/request_settings.h"

#include <optional>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "engine/base/status.h"

namespace tandem::cli {
namespace {

// The flags with these values on top of them.
absl::StatusOr<RequestFlags> Apply(RequestFlags flags,
                                   const std::map<std::string, std::string>& values) {
  CLI::App app;
  app.set_help_flag();
  flags.AddTo(app);
  std::vector<std::string> arguments;  // CLI11 takes them backwards
  for (const auto& [name, value] : values) arguments.push_back("--" + name + "=" + value);
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return InvalidArgument(error.what());
  }
  v1::GenerateRequest request;
  RETURN_IF_ERROR(flags.Fill(request));
  return flags;
}

}  // namespace

absl::Status RequestSettings::Set(const std::string& name, const std::string& value) {
  std::map<std::string, std::string> values = values_;
  values[name] = value;
  ASSIGN_OR_RETURN(RequestFlags flags, Apply(base_, values));
  values_ = std::move(values);
  flags_ = std::move(flags);
  return absl::OkStatus();
}

absl::Status RequestSettings::Unset(const std::string& name) {
  if (values_.erase(name) == 0) return NotFound(name, " was not set");
  ASSIGN_OR_RETURN(flags_, Apply(base_, values_));
  return absl::OkStatus();
}

}  // namespace tandem::cli
